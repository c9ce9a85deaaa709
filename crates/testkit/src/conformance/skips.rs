//! The list of what an engine does not pass, with the reason.

use std::{fs, path::Path};

/// Tests that an engine may fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Name of the engine; `*` for all.
    pub engine: String,
    /// Kind and name of a test, in which `*` stands for any letters: `node/test_adam*`.
    pub tests: String,
    /// A clause.
    pub reason: String,
}

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.engine, self.tests, self.reason)
    }
}

/// Reads a list: a line `ENGINE TESTS: REASON` each; lines that begin with `//` and empty ones say nothing.
pub fn skips(path: &Path) -> Result<Vec<Skip>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, l)| !l.trim().is_empty() && !l.starts_with("//"));
    lines
        .map(|(i, line)| {
            let parts = line.split_once(": ").and_then(|(head, reason)| {
                let (engine, tests) = head.split_once(' ')?;
                Some(Skip {
                    engine: engine.to_owned(),
                    tests: tests.trim().to_owned(),
                    reason: reason.trim().to_owned(),
                })
            });
            parts.ok_or_else(|| {
                let place = format!("{}:{}", path.display(), i + 1);
                format!("{place}: needs `ENGINE TESTS: REASON`, found `{line}`")
            })
        })
        .collect()
}

impl Skip {
    /// Whether it is about this test on this engine.
    pub(super) fn is_about(&self, engine: &str, label: &str) -> bool {
        (self.engine == "*" || self.engine == engine) && matches(&self.tests, label)
    }
}

/// Whether a text is of a form in which `*` stands for any letters.
fn matches(form: &str, text: &str) -> bool {
    let Some((head, rest)) = form.split_once('*') else { return form == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    (0..=text.len()).any(|i| text.is_char_boundary(i) && matches(rest, &text[i..]))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stand_for_any_letters() {
        for (form, text) in [("a", "a"), ("*", ""), ("a*", "abc"), ("*c", "abc"), ("a*c*", "abcd")]
        {
            assert!(matches(form, text), "{form} {text}");
        }
        for (form, text) in [("a", "ab"), ("a*c", "abd"), ("*x", "abc"), ("", "a")] {
            assert!(!matches(form, text), "{form} {text}");
        }
    }
}
