//! `explain-error`: an error code in prose.

use crate::{args::ExplainError, output::say};
use bricolage::{Error, codes};
use std::process::ExitCode;

pub(crate) fn run(a: &ExplainError) -> Result<ExitCode, Error> {
    let Some(name) = &a.code else {
        for code in codes::CODES {
            say!("{}", code.name);
        }
        return Ok(ExitCode::SUCCESS);
    };
    let code = codes::find(name).ok_or_else(|| Error::Inputs {
        what: format!("no error has the code `{name}`"),
        help: "`bricolage explain-error` lists all codes".to_owned(),
    })?;
    say!("{}", code.name);
    say!("{}", filled(code.prose, 78));
    Ok(ExitCode::SUCCESS)
}

/// The words in lines of at most so many characters.
fn filled(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.join("\n")
}
