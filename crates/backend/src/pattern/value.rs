//! Values of expressions, and what is computed with them.

use super::{
    constraint::Property,
    syntax::{Arithmetic, Comparison, Literal},
};
use bricolage_tensor::{DType, Dim, Shape};
use serde_json::Value as Json;
use std::fmt;

/// What an expression gives.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A size that is no number, as it is written.
    Unknown(String),
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(String),
    List(Vec<Value>),
}

impl From<&Literal> for Value {
    fn from(literal: &Literal) -> Value {
        match literal {
            Literal::Int(n) => Value::Int(*n),
            Literal::Real(n) => Value::Real(*n),
            Literal::Text(text) => Value::Text(text.clone()),
            Literal::Bool(value) => Value::Bool(*value),
        }
    }
}

impl From<&Dim> for Value {
    fn from(dim: &Dim) -> Value {
        dim.as_const().map_or_else(|| Value::Unknown(dim.to_string()), Value::Int)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unknown(text) => write!(f, "{text} (no number)"),
            Value::Bool(value) => value.fmt(f),
            Value::Int(n) => n.fmt(f),
            Value::Real(n) => write!(f, "{n:?}"),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::List(all) => {
                let all: Vec<String> = all.iter().map(Value::to_string).collect();
                write!(f, "[{}]", all.join(", "))
            }
        }
    }
}

/// A value, or why there is none.
pub(super) type Found = Result<Value, String>;

pub(super) fn count(n: usize) -> Value {
    Value::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

pub(super) fn int(number: Option<i64>, what: impl FnOnce() -> String) -> Found {
    number.map(Value::Int).ok_or_else(|| format!("{}, which is no number of 64 bits", what()))
}

/// Where a position lies that counts from the end if it is negative.
pub(super) fn index(at: i64, len: usize) -> Option<usize> {
    let at = if at < 0 { at.checked_add(i64::try_from(len).ok()?)? } else { at };
    usize::try_from(at).ok().filter(|&at| at < len)
}

/// What may be asked of every tensor; `None` for other properties.
pub(super) fn of_tensor(dtype: DType, shape: &Shape, property: Property) -> Option<Found> {
    let whole = |number: Option<u64>| match shape.as_fixed() {
        None => Ok(Value::Unknown(shape.to_string())),
        Some(_) => {
            int(number.and_then(|n| i64::try_from(n).ok()), || format!("the size of {shape}"))
        }
    };
    Some(match property {
        Property::Rank => Ok(count(shape.len())),
        Property::Dims => Ok(Value::List(shape.iter().map(Value::from).collect())),
        Property::DType => Ok(Value::Text(dtype.name().to_owned())),
        Property::Elements => whole(shape.element_count()),
        Property::Bytes => whole(shape.element_count().and_then(|n| dtype.byte_len(n))),
        _ => return None,
    })
}

pub(super) fn of_json(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Null => return None,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => Value::Int(n),
            (None, n) => Value::Real(n?),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(all) => Value::List(all.iter().map(of_json).collect::<Option<Vec<Value>>>()?),
        // A choice with parameters is called by its name.
        Json::Object(named) => Value::Text(named.keys().next()?.clone()),
    })
}

pub(super) fn arithmetic(operation: Arithmetic, a: Value, b: Value) -> Found {
    let (a, b) = match (a, b) {
        (Value::Int(a), Value::Int(b)) => (a, b),
        (Value::Unknown(text), Value::Int(_) | Value::Unknown(_)) => {
            return Ok(Value::Unknown(text));
        }
        (Value::Int(_), Value::Unknown(text)) => return Ok(Value::Unknown(text)),
        (Value::Int(_) | Value::Unknown(_), other) | (other, _) => {
            return Err(format!("{other} where an integer is needed"));
        }
    };
    let (mark, result) = match operation {
        Arithmetic::Add => ("+", a.checked_add(b)),
        Arithmetic::Subtract => ("-", a.checked_sub(b)),
        Arithmetic::Multiply => ("*", a.checked_mul(b)),
        Arithmetic::Divide => ("/", a.checked_div(b)),
        Arithmetic::Remainder => ("%", a.checked_rem(b)),
    };
    int(result, || format!("{a} {mark} {b}"))
}

pub(super) fn compare(comparison: Comparison, a: &Value, b: &Value) -> Found {
    use std::cmp::Ordering;
    let order = match (a, b) {
        (Value::Unknown(text), _) | (_, Value::Unknown(text)) => {
            return Ok(Value::Unknown(text.clone()));
        }
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Real(b)) => (*a as f64).partial_cmp(b),
        (Value::Real(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Value::Real(a), Value::Real(b)) => a.partial_cmp(b),
        // An attribute that holds a size is written as a text where the size is no number.
        (Value::Text(text), Value::Int(_)) | (Value::Int(_), Value::Text(text)) => {
            return Ok(Value::Unknown(text.clone()));
        }
        (Value::Text(_), Value::Text(_)) | (Value::Bool(_), Value::Bool(_))
            if matches!(comparison, Comparison::Equal | Comparison::Differs) =>
        {
            Some(if a == b { Ordering::Equal } else { Ordering::Less })
        }
        (Value::List(a), Value::List(b))
            if matches!(comparison, Comparison::Equal | Comparison::Differs) =>
        {
            return Ok(match equal_lists(a, b)? {
                Value::Bool(equal) => Value::Bool(equal == (comparison == Comparison::Equal)),
                other => other,
            });
        }
        _ => return Err(format!("{a} compared with {b}")),
    };
    Ok(Value::Bool(match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::Differs => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }))
}

/// Whether lists are as long as each other and each element equals that of its place, joined as by `&&`.
fn equal_lists(a: &[Value], b: &[Value]) -> Found {
    if a.len() != b.len() {
        return Ok(Value::Bool(false));
    }
    let pairs = a.iter().zip(b).map(|(a, b)| compare(Comparison::Equal, a, b));
    let least = pairs.min_by_key(|found| match found {
        Ok(Value::Bool(false)) => 0,
        Err(_) => 1,
        Ok(Value::Unknown(_)) => 2,
        Ok(_) => 3,
    });
    least.unwrap_or(Ok(Value::Bool(true)))
}
