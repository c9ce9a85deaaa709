//! The examples of `docs/patterns.md` are files, and its errors are those that they give.

use bricolage_backend::pattern::{
    File, Library,
    syntax::{Declaration, Literal},
};

/// Blocks of code in the page, each with the word after its fence.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(word)) => open = Some((word.to_owned(), String::new())),
            (Some(_), Some(_)) => all.extend(open.take()),
            (Some((_, text)), None) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert_eq!(open, None, "every block ends");
    all
}

/// A library with the entries that the file names.
fn library(file: &File) -> Library {
    let entry = |d: &Declaration| match d {
        Declaration::Pattern(p) => Some(p.claim.entry.as_ref().unwrap_or(&p.name).text.clone()),
        Declaration::Rule(r) => Some(r.claim.entry.as_ref().unwrap_or(&r.name).text.clone()),
        Declaration::Convert(c) => Some(c.name.text.clone()),
        _ => None,
    };
    Library {
        entries: file.declarations.iter().filter_map(entry).collect(),
        machine: vec![("isa".to_owned(), Literal::Text("avx2".to_owned()))],
        version: "1.5".to_owned(),
    }
}

/// What is wrong with an example, which may leave its backend out.
fn faults(text: &str) -> Option<String> {
    let mut whole = text.to_owned();
    if !text.contains("backend ") {
        // At the end, so that lines keep their numbers.
        whole += "backend docs {}";
    }
    let file = match File::parse("docs.patterns", &whole) {
        Ok(file) => file,
        Err(error) => return Some(error.to_string()),
    };
    assert_eq!(File::parse("printed", &file.to_string()).as_ref(), Ok(&file));
    file.check("docs.patterns", &library(&file)).err().map(|e| e.to_string())
}

#[test]
fn the_examples_are_what_the_page_says() {
    let blocks = blocks(include_str!("../../../docs/patterns.md"));
    let (mut good, mut bad) = (0, 0);
    for (i, (word, text)) in blocks.iter().enumerate() {
        match word.as_str() {
            "patterns" => {
                assert_eq!(faults(text), None, "{text}");
                good += 1;
            }
            "patterns error" => {
                let (_, expected) = &blocks[i + 1];
                assert_eq!(faults(text).as_deref(), Some(expected.trim_end()), "{text}");
                bad += 1;
            }
            "text" => {}
            other => panic!("a block of an unknown kind: {other}"),
        }
    }
    assert_eq!((good, bad), (9, 2));
}
