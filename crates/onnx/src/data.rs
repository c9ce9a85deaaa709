//! Stored values of every kind: tensors, texts, lists and optional values, such as the test data of ONNX.

use crate::{
    ImportError, TensorFault,
    proto::{TensorProto, tensor_proto::DataType},
    tensor::{External, from_proto, strings_of},
};
use bricolage_tensor::{Datum, Storage};
use prost::{Message, bytes::Bytes};

/// What a stored value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A `TensorProto`.
    Tensor,
    /// A `SequenceProto`.
    Sequence,
    /// An `OptionalProto`.
    Optional,
}

/// A list of values of one kind.
#[derive(Clone, PartialEq, Message)]
struct SequenceProto {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    /// 1 for tensors, 3 for lists, 5 for optional values.
    #[prost(int32, optional, tag = "2")]
    elem_type: Option<i32>,
    #[prost(message, repeated, tag = "3")]
    tensor_values: Vec<TensorProto>,
    #[prost(message, repeated, tag = "5")]
    sequence_values: Vec<SequenceProto>,
    #[prost(message, repeated, tag = "7")]
    optional_values: Vec<OptionalProto>,
}

/// A value of some kind, or none.
#[derive(Clone, PartialEq, Message)]
struct OptionalProto {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(int32, optional, tag = "2")]
    elem_type: Option<i32>,
    #[prost(message, optional, tag = "3")]
    tensor_value: Option<TensorProto>,
    #[prost(message, optional, boxed, tag = "5")]
    sequence_value: Option<Box<SequenceProto>>,
    #[prost(message, optional, boxed, tag = "7")]
    optional_value: Option<Box<OptionalProto>>,
}

/// Reads a single stored value.
pub fn read_datum(bytes: Storage, kind: Stored) -> Result<Datum, ImportError> {
    let len = bytes.len();
    let bytes = Bytes::from_owner(bytes);
    let bad = |error: prost::DecodeError| ImportError::Decode { len, why: error.to_string() };
    let (name, datum) = match kind {
        Stored::Tensor => {
            let t = TensorProto::decode(bytes).map_err(bad)?;
            (t.name().to_owned(), tensor(&t))
        }
        Stored::Sequence => {
            let s = SequenceProto::decode(bytes).map_err(bad)?;
            (s.name().to_owned(), sequence(&s))
        }
        Stored::Optional => {
            let o = OptionalProto::decode(bytes).map_err(bad)?;
            (o.name().to_owned(), optional(&o))
        }
    };
    datum.map_err(|fault| ImportError::Tensor { name, fault })
}

fn tensor(t: &TensorProto) -> Result<Datum, TensorFault> {
    if t.data_type() == DataType::String as i32 {
        return strings_of(t).map(Datum::from);
    }
    from_proto(t, &mut External::new(None)).map(Datum::from)
}

fn sequence(s: &SequenceProto) -> Result<Datum, TensorFault> {
    let tensors = s.tensor_values.iter().map(tensor);
    let lists = s.sequence_values.iter().map(sequence);
    let optionals = s.optional_values.iter().map(optional);
    Ok(Datum::Sequence(tensors.chain(lists).chain(optionals).collect::<Result<_, _>>()?))
}

fn optional(o: &OptionalProto) -> Result<Datum, TensorFault> {
    let inner = match (&o.tensor_value, &o.sequence_value, &o.optional_value) {
        (Some(t), _, _) => Some(tensor(t)?),
        (_, Some(s), _) => Some(sequence(s)?),
        (_, _, Some(o)) => Some(optional(o)?),
        _ => None,
    };
    Ok(Datum::Optional(inner.map(Box::new)))
}
