//! Operators on texts, and those that count n-grams.

use super::at::{At, Fault, Imported, malformed, unsupported};
use bricolage_ir::{
    Real,
    ops::{Case, Labels, Ngrams, Text, Weighting},
};

pub(crate) fn concat(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    at.one(Text::Concat, &all)
}

pub(crate) fn normalise(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(1, 1)?;
    let case = match at.text("case_change_action", "NONE")?.as_str() {
        "NONE" => None,
        "LOWER" => Some(Case::Lower),
        "UPPER" => Some(Case::Upper),
        other => {
            return malformed(format!("needs a known `case_change_action`, found `{other}`"));
        }
    };
    // Letters change as Unicode says, in every locale.
    at.ignore(&["locale"]);
    let case_sensitive = at.flag("is_case_sensitive", false)?;
    let stop = at.texts("stopwords")?.unwrap_or_default();
    let found = at.fresh_dim("found");
    at.one(Text::Normalise { case, case_sensitive, stop, found }, &all)
}

pub(crate) fn full_match(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(1, 1)?;
    let pattern = at.text("pattern", "")?;
    at.one(Text::Matches { pattern }, &all)
}

pub(crate) fn split(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(1, 1)?;
    let delimiter = Some(at.text("delimiter", "")?).filter(|d| !d.is_empty());
    let most = at.int("maxsplit")?;
    let found = at.fresh_dim("found");
    at.add_all(Text::Split { delimiter, most, found }, &all)
}

fn places(at: &mut At<'_, '_>, name: &'static str) -> Result<Vec<usize>, Fault> {
    let list = at.ints(name)?.unwrap_or_default();
    let place = |&n: &i64| match usize::try_from(n) {
        Ok(n) if n < 1 << 24 => Ok(n),
        _ => malformed(format!("needs numbers from 0 to 16777215 as `{name}`, found {n}")),
    };
    list.iter().map(place).collect()
}

pub(crate) fn ngrams(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(1, 1)?;
    let weighting = match at.text("mode", "")?.as_str() {
        "TF" => Weighting::Count,
        "IDF" => Weighting::Weight,
        "TFIDF" => Weighting::Both,
        other => return malformed(format!("needs a known `mode`, found `{other}`")),
    };
    let length = |n: i64, name: &str| match usize::try_from(n) {
        Ok(n) if n < 1 << 16 => Ok(n),
        _ => malformed(format!("needs a number from 0 to 65535 as `{name}`, found {n}")),
    };
    let min = length(at.int_or("min_gram_length", 1)?, "min_gram_length")?;
    let max = length(at.int_or("max_gram_length", 1)?, "max_gram_length")?;
    let skip = length(at.int_or("max_skip_count", 0)?, "max_skip_count")?;
    let pool = match (at.texts("pool_strings")?, at.ints("pool_int64s")?) {
        (Some(texts), None) => Labels::Texts(texts),
        (None, Some(ints)) => Labels::Ints(ints),
        (None, None) => return malformed("needs a pool, found none"),
        (Some(_), Some(_)) => return unsupported("needs one pool, found two"),
    };
    let (starts, columns) = (places(at, "ngram_counts")?, places(at, "ngram_indexes")?);
    let weights = at.floats("weights").unwrap_or_default().into_iter().map(Real::from).collect();
    let op = Ngrams { min, max, skip, weighting, pool, starts, columns, weights };
    at.one(op, &all)
}
