//! One answer per op kind for facets that live outside this crate.

use crate::OpKind;

/// An answer for one kind, or the reason that there is none.
#[derive(Debug)]
pub struct Row<T>(pub OpKind, pub Result<T, &'static str>);

/// Exactly one [`Row`] for every [`OpKind`].
#[derive(Debug)]
pub struct OpTable<T: 'static>(&'static [Row<T>]);

impl<T> OpTable<T> {
    /// Fails to compile, when used for a `static`, if a kind is missing or named twice;
    /// [`missing`] tells which, from a test.
    pub const fn complete(rows: &'static [Row<T>]) -> OpTable<T> {
        let mut kind = 0;
        while kind < OpKind::ALL.len() {
            let (mut row, mut hits) = (0, 0);
            while row < rows.len() {
                if rows[row].0 as u8 == OpKind::ALL[kind] as u8 {
                    hits += 1;
                }
                row += 1;
            }
            assert!(hits == 1, "an op kind is missing from this table, or is listed twice");
            kind += 1;
        }
        OpTable(rows)
    }

    /// The answer for `kind`.
    pub fn get(&self, kind: OpKind) -> &Result<T, &'static str> {
        let row = self.0.iter().find(|row| row.0 == kind);
        &row.expect("`complete` checked that every kind has a row").1
    }

    /// All rows, in the order of the table.
    pub fn rows(&self) -> &'static [Row<T>] {
        self.0
    }
}

/// Names of the kinds that `rows` lacks or lists more than once; empty for a complete table.
pub fn missing<T>(rows: &[Row<T>]) -> Vec<&'static str> {
    let hits = |kind: OpKind| rows.iter().filter(|row| row.0 == kind).count();
    OpKind::ALL.iter().filter(|&&kind| hits(kind) != 1).map(|kind| kind.name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_names_gaps_and_doubles() {
        let mut rows: Vec<Row<()>> = OpKind::ALL.iter().map(|&k| Row(k, Err("none"))).collect();
        assert!(missing(&rows).is_empty());
        let kind = rows.pop().map(|row| row.0).unwrap();
        assert_eq!(missing(&rows), [kind.name()]);
        rows.push(Row(kind, Ok(())));
        rows.push(Row(kind, Ok(())));
        assert_eq!(missing(&rows), [kind.name()]);
    }
}
