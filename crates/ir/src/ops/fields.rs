//! Names of attributes, found by asking serde for the fields of a type.

use serde::{
    Deserializer,
    de::{DeserializeOwned, Error as _, Visitor, value::Error},
    forward_to_deserialize_any,
};

/// The fields of a struct; none for any other type.
pub(super) fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut found: &'static [&'static str] = &[];
    // The reader holds no content, so that reading always ends in an error.
    let _ = T::deserialize(Reader(&mut found));
    found
}

/// Notes what fields it is asked for.
struct Reader<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is no content"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use crate::OpKind;

    #[test]
    fn attributes_are_the_fields_of_an_op() {
        assert_eq!(OpKind::Conv.attribute_names(), ["strides", "dilations", "pads", "groups"]);
        assert_eq!(OpKind::MatMul.attribute_names(), ["transpose_lhs", "transpose_rhs"]);
        assert_eq!(OpKind::Select.attribute_names(), [""; 0]);
        assert_eq!(OpKind::Binary.attribute_names(), [""; 0]);
    }
}
