//! Declared types and the symbols in them.

use crate::{
    proto::{
        GraphProto, TensorShapeProto, TypeProto, tensor_proto::DataType,
        tensor_shape_proto::dimension::Value as DimValue, type_proto::Value,
    },
    tensor::dtype_of,
};
use bricolage_tensor::{Dim, Shape, TensorType, Type};
use std::collections::{HashMap, HashSet};

/// The dims that names in a model stand for.
pub(crate) struct Symbols {
    named: HashMap<String, Dim>,
    taken: HashSet<String>,
}

/// What was needed and what was found.
type Refusal = (&'static str, String);

impl Symbols {
    /// The symbols of a graph's inputs. A name that is an expression over others, such as
    /// `past + 1`, means that expression.
    pub(crate) fn new(graph: &GraphProto) -> Symbols {
        let mut names: Vec<&str> = Vec::new();
        for input in &graph.input {
            let Some(Value::TensorType(t)) = input.r#type.as_ref().and_then(|t| t.value.as_ref())
            else {
                continue;
            };
            for dim in t.shape.iter().flat_map(|s| &s.dim) {
                if let Some(DimValue::DimParam(name)) = &dim.value
                    && !names.contains(&name.as_str())
                {
                    names.push(name);
                }
            }
        }
        let mut symbols = Symbols { named: HashMap::new(), taken: HashSet::new() };
        symbols.taken.insert(Type::ANY.to_owned());
        let (plain, other): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|n| is_name(n));
        for name in plain {
            symbols.add(name);
        }
        for name in other {
            let squeezed: String = name.chars().filter(|c| !c.is_whitespace()).collect();
            let parsed = Dim::parse(&squeezed).ok().filter(|dim| {
                let mut used = Vec::new();
                dim.symbols(&mut used);
                !used.is_empty() && used.iter().all(|s| symbols.named.contains_key(&*s.0))
            });
            match parsed {
                Some(dim) => {
                    symbols.named.insert(name.to_owned(), dim);
                }
                None => {
                    symbols.add(name);
                }
            }
        }
        symbols
    }

    /// What a name stands for.
    pub(crate) fn get(&self, name: &str) -> Option<&Dim> {
        self.named.get(name)
    }

    fn add(&mut self, name: &str) -> Dim {
        let mut symbol = plain(name);
        while !self.taken.insert(symbol.clone()) {
            symbol.push('_');
        }
        let dim = Dim::symbol(&symbol);
        self.named.insert(name.to_owned(), dim.clone());
        dim
    }

    /// A size of its own, named after `base`.
    pub(crate) fn fresh(&mut self, base: &str) -> Dim {
        let mut symbol = plain(base);
        while !self.taken.insert(symbol.clone()) {
            symbol.push('_');
        }
        Dim::symbol(&symbol)
    }

    /// The type with a size of its own for every unknown one inside a list or an optional value.
    pub(crate) fn open(&mut self, ty: &Type, base: &str) -> Type {
        let mut shape = |shape: &Shape| -> Shape {
            let any = |d: &Dim| d.as_symbol().is_some_and(|s| &*s.0 == Type::ANY);
            let one = |(i, d): (usize, &Dim)| match any(d) {
                true => self.fresh(&format!("{base}_d{i}")),
                false => d.clone(),
            };
            shape.iter().enumerate().map(one).collect()
        };
        match ty {
            Type::Tensor(t) => Type::Tensor(TensorType { dtype: t.dtype, shape: shape(&t.shape) }),
            Type::Strings(s) => Type::Strings(shape(s)),
            other => other.clone(),
        }
    }

    /// A type of which `a` and `b` are cases; a size becomes one of its own where they differ or where
    /// `own` says that it means nothing outside. `None` where there is no such type.
    pub(crate) fn cover(
        &mut self,
        base: &str,
        a: &Type,
        b: &Type,
        own: &dyn Fn(&Dim) -> bool,
    ) -> Option<Type> {
        let mut shape = |a: &Shape, b: &Shape| -> Shape {
            let one = |(i, (a, b)): (usize, (&Dim, &Dim))| match a == b && !own(a) {
                true => a.clone(),
                false => self.fresh(&format!("{base}_d{i}")),
            };
            a.iter().zip(b.iter()).enumerate().map(one).collect()
        };
        match (a, b) {
            (Type::Tensor(a), Type::Tensor(b))
                if a.dtype == b.dtype && a.shape.len() == b.shape.len() =>
            {
                let shape = shape(&a.shape, &b.shape);
                Some(Type::Tensor(TensorType { dtype: a.dtype, shape }))
            }
            (Type::Strings(a), Type::Strings(b)) if a.len() == b.len() => {
                Some(Type::Strings(shape(a, b)))
            }
            _ => a.join(b),
        }
    }

    /// The type declared for `name`, of any kind.
    pub(crate) fn any_type(&mut self, name: &str, ty: Option<&TypeProto>) -> Result<Type, Refusal> {
        let inner = |t: &Option<Box<TypeProto>>, symbols: &mut Symbols| {
            let t = t.as_deref();
            if let Some(Value::TensorType(t)) = t.and_then(|t| t.value.as_ref())
                && t.shape.is_none()
                && let Ok(dtype) = dtype_of(t.elem_type())
            {
                return Ok(Box::new(Type::Unranked(dtype)));
            }
            symbols.any_type(name, t).map(|t| Box::new(t.enclosed()))
        };
        match ty.and_then(|t| t.value.as_ref()) {
            Some(Value::SequenceType(s)) => Ok(Type::Sequence(inner(&s.elem_type, self)?)),
            Some(Value::OptionalType(s)) => Ok(Type::Optional(inner(&s.elem_type, self)?)),
            Some(Value::TensorType(t)) if t.elem_type() == DataType::String as i32 => {
                let shape = t.shape.as_ref().ok_or(("a declared shape", "none".to_owned()))?;
                Ok(Type::Strings(self.shape(name, shape)?))
            }
            _ => self.tensor_type(name, ty).map(Type::Tensor),
        }
    }

    /// The tensor type declared for `name`; unknown dims without a name get one.
    pub(crate) fn tensor_type(
        &mut self,
        name: &str,
        ty: Option<&TypeProto>,
    ) -> Result<TensorType, Refusal> {
        let t = match ty.and_then(|t| t.value.as_ref()) {
            Some(Value::TensorType(t)) => t,
            Some(_) => return Err(("a tensor type", "another kind of value".to_owned())),
            None => return Err(("a declared type", "none".to_owned())),
        };
        let dtype = dtype_of(t.elem_type()).map_err(|f| match f {
            crate::TensorFault::Element { found } => ("a numeric or bool element type", found),
            other => ("a numeric or bool element type", other.to_string()),
        })?;
        let shape = t.shape.as_ref().ok_or(("a declared shape", "none".to_owned()))?;
        Ok(TensorType { dtype, shape: self.shape(name, shape)? })
    }

    fn shape(&mut self, name: &str, shape: &TensorShapeProto) -> Result<Shape, Refusal> {
        let mut dims = Vec::new();
        for (i, dim) in shape.dim.iter().enumerate() {
            dims.push(match &dim.value {
                // Exporters write -1 for a size that they do not know.
                Some(DimValue::DimValue(-1)) => self.add(&format!("{name}_d{i}")),
                Some(DimValue::DimValue(n)) if *n < 0 => {
                    return Err(("dims of at least 0, or -1 for an unknown one", n.to_string()));
                }
                Some(DimValue::DimValue(n)) => Dim::from(*n),
                // Some exporters write a question mark for every size that they do not know.
                Some(DimValue::DimParam(p)) if !p.is_empty() && p != "?" => match self.named.get(p)
                {
                    Some(dim) => dim.clone(),
                    None => self.add(p),
                },
                _ => self.add(&format!("{name}_d{i}")),
            });
        }
        Ok(Shape(dims))
    }
}

/// The text as the name of a symbol.
fn plain(name: &str) -> String {
    let allowed = |c: char| if c.is_whitespace() || "+*(),-[]".contains(c) { '_' } else { c };
    let mut symbol: String = name.chars().map(allowed).collect();
    if symbol.is_empty() || symbol.starts_with(|c: char| c.is_ascii_digit()) {
        symbol.insert(0, '_');
    }
    symbol
}

/// Whether [`Dim::parse`] reads the text as one symbol.
fn is_name(text: &str) -> bool {
    Dim::parse(text).is_ok_and(|d| d.as_symbol().is_some_and(|s| &*s.0 == text))
}

/// How a declared type differs from the one that was found; both hold it as text.
pub(crate) enum Contradiction {
    /// In the type of the elements, or in being no tensor.
    Element(String),
    /// In rank or sizes.
    Sizes(String),
}

/// Where the declared type cannot be that of `found`. Symbols fit every size.
pub(crate) fn contradiction(found: &TensorType, declared: &TypeProto) -> Option<Contradiction> {
    let Some(Value::TensorType(t)) = &declared.value else {
        // An empty type declares nothing.
        declared.value.as_ref()?;
        return Some(Contradiction::Element("another kind of value".to_owned()));
    };
    let dtype = dtype_of(t.elem_type());
    let other_type = dtype.as_ref().is_ok_and(|d| *d != found.dtype);
    let name = dtype.as_ref().map_or("?", |d| d.name());
    let Some(shape) = &t.shape else {
        return other_type.then(|| Contradiction::Element(format!("{name}[..]")));
    };
    let dims: Vec<String> = shape
        .dim
        .iter()
        .map(|d| match &d.value {
            Some(DimValue::DimValue(n)) => n.to_string(),
            Some(DimValue::DimParam(p)) => p.clone(),
            None => "?".to_owned(),
        })
        .collect();
    let text = format!("{name}[{}]", dims.join(", "));
    if other_type {
        return Some(Contradiction::Element(text));
    }
    let other_dims = shape.dim.len() != found.shape.len()
        || shape.dim.iter().zip(found.shape.iter()).any(|(d, have)| {
            match (&d.value, have.as_const()) {
                (Some(DimValue::DimValue(n)), Some(have)) => *n != have && *n != -1,
                _ => false,
            }
        });
    other_dims.then_some(Contradiction::Sizes(text))
}
