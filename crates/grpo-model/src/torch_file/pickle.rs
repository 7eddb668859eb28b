//! The subset of Python's pickle format that PyTorch writes for weights.
//!
//! A pickle is a program for a stack machine whose calls can run any Python function. This machine
//! only knows the functions that rebuild tensors and ordered dictionaries ([`Global`]), and calls
//! none of them: it only records what they would build. A pickle that refers to anything else is
//! rejected.
//!
//! Containers live in one list and refer to each other by index. Shared and nested objects
//! therefore cost neither copies nor recursion, and memory is proportional to the pickle's length.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tensor::{Element, StorageRef, TensorRef};

/// A value of a pickle.
#[derive(Clone, Debug)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i128),
    Float,
    Text(Arc<str>),
    /// Index of a tuple or list in [`Pickle::lists`].
    List(usize),
    /// Index of a dictionary in [`Pickle::dicts`].
    Dict(usize),
    Global(Global),
    Storage(Arc<StorageRef>),
    Tensor(Arc<TensorRef>),
}

/// The Python objects that a pickle may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    OrderedDict,
    RebuildTensor,
    RebuildTensorV2,
    /// Rebuilds tensors of types that have no class of storages, none of which is supported. It is known
    /// so that the message names the type, which follows it.
    RebuildTensorV3,
    RebuildParameter,
    /// A class of storages.
    Storage(Element),
}

/// The result of a pickle.
#[derive(Debug, Default)]
pub(super) struct Pickle {
    lists: Vec<Vec<Value>>,
    dicts: Vec<Vec<(Value, Value)>>,
    /// Size of an element in bytes of each storage.
    storages: BTreeMap<Arc<str>, usize>,
}

impl Pickle {
    /// Returns the size of an element in bytes of a storage.
    pub(super) fn element_size(&self, storage: &str) -> Option<usize> {
        self.storages.get(storage).copied()
    }

    /// Returns the items of a tuple or list.
    pub(super) fn items(&self, value: &Value) -> Option<&[Value]> {
        match value {
            Value::List(index) => Some(&self.lists[*index]),
            _ => None,
        }
    }

    /// Returns the entries of a dictionary with text keys.
    pub(super) fn entries(&self, value: &Value) -> Option<Vec<(&str, &Value)>> {
        let Value::Dict(index) = value else { return None };
        let entries = self.dicts[*index].iter().filter_map(|(key, value)| match key {
            Value::Text(key) => Some((&**key, value)),
            _ => None,
        });
        Some(entries.collect())
    }

    /// Runs the pickle at the start of `bytes`. Returns its value and the number of bytes it takes.
    ///
    /// # Errors
    /// Returns a description of the first unsupported or invalid operation.
    pub(super) fn run(&mut self, bytes: &[u8]) -> Result<(Value, usize), String> {
        let memo = BTreeMap::new();
        let stack = Vec::new();
        let mut machine = Machine { bytes, at: 0, stack, marks: Vec::new(), memo, objects: self };
        loop {
            if let Some(value) = machine.step()? {
                return Ok((value, machine.at));
            }
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// Stack heights at the open marks.
    marks: Vec<usize>,
    memo: BTreeMap<u32, Value>,
    objects: &'a mut Pickle,
}

impl<'a> Machine<'a> {
    /// Runs one operation. Returns the result after the last one.
    fn step(&mut self) -> Result<Option<Value>, String> {
        let at = self.at;
        let [operation] = self.array()?;
        match operation {
            b'.' => return self.pop().map(Some),
            // PROTO and FRAME.
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'N' => self.stack.push(Value::None),
            0x88 => self.stack.push(Value::Bool(true)),
            0x89 => self.stack.push(Value::Bool(false)),
            b'J' | b'K' | b'M' | 0x8A | 0x8B => self.integer(operation)?,
            b'G' => {
                self.take(8)?;
                self.stack.push(Value::Float);
            }
            b'X' | 0x8C | 0x8D => self.text(operation)?,
            b')' => self.list(Vec::new()),
            b']' => self.list(Vec::new()),
            b't' => {
                let items = self.pop_to_mark()?;
                self.list(items);
            }
            0x85..=0x87 => {
                let items = self.pop_many(usize::from(operation - 0x84))?;
                self.list(items);
            }
            b'a' => {
                let items = vec![self.pop()?];
                self.extend(items)?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.extend(items)?;
            }
            b'}' => self.dict(),
            b's' => {
                let pair = self.pop_many(2)?;
                self.set_items(pair)?;
            }
            b'u' => {
                let pairs = self.pop_to_mark()?;
                self.set_items(pairs)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.stack.push(Value::Global(Global::named(&module, &name)?));
            }
            0x93 => match self.pop_many(2)?.as_slice() {
                [Value::Text(module), Value::Text(name)] => {
                    self.stack.push(Value::Global(Global::named(module, name)?));
                }
                _ => return Err("its pickle refers to a function without a name".to_owned()),
            },
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(&id)?;
                self.stack.push(storage);
            }
            b'R' => self.call()?,
            b'b' => self.set_attributes()?,
            b'q' | b'r' | 0x94 => self.memorise(operation)?,
            b'h' | b'j' => self.recall(operation)?,
            _ => {
                return Err(format!(
                    "its pickle has the operation {operation:#04x} at byte {at}, which PyTorch does not write for weights"
                ));
            }
        }
        Ok(None)
    }

    fn integer(&mut self, operation: u8) -> Result<(), String> {
        let value = match operation {
            b'J' => i128::from(i32::from_le_bytes(self.array()?)),
            b'K' => i128::from(u8::from_le_bytes(self.array()?)),
            b'M' => i128::from(u16::from_le_bytes(self.array()?)),
            _ => {
                let length = match operation {
                    0x8A => usize::from(u8::from_le_bytes(self.array()?)),
                    _ => self.length()?,
                };
                let bytes = self.take(length)?;
                if length > 16 {
                    return Err("its pickle has an integer of more than 128 bits".to_owned());
                }
                // Two's complement of any length, extended by its sign.
                let sign = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
                let mut extended = [if sign { 0xFF } else { 0 }; 16];
                extended[..length].copy_from_slice(bytes);
                i128::from_le_bytes(extended)
            }
        };
        self.stack.push(Value::Int(value));
        Ok(())
    }

    fn text(&mut self, operation: u8) -> Result<(), String> {
        let length = match operation {
            b'X' => self.length()?,
            0x8C => usize::from(u8::from_le_bytes(self.array()?)),
            _ => usize::try_from(u64::from_le_bytes(self.array()?)).unwrap_or(usize::MAX),
        };
        let text = std::str::from_utf8(self.take(length)?);
        let text = text.map_err(|_| "its pickle has text that is not UTF-8".to_owned())?;
        self.stack.push(Value::Text(text.into()));
        Ok(())
    }

    fn list(&mut self, items: Vec<Value>) {
        self.stack.push(Value::List(self.objects.lists.len()));
        self.objects.lists.push(items);
    }

    fn dict(&mut self) {
        self.stack.push(Value::Dict(self.objects.dicts.len()));
        self.objects.dicts.push(Vec::new());
    }

    fn extend(&mut self, items: Vec<Value>) -> Result<(), String> {
        match self.stack.last() {
            Some(Value::List(index)) => self.objects.lists[*index].extend(items),
            _ => return Err("its pickle appends to something that is not a list".to_owned()),
        }
        Ok(())
    }

    fn set_items(&mut self, pairs: Vec<Value>) -> Result<(), String> {
        let Some(Value::Dict(index)) = self.stack.last() else {
            return Err("its pickle sets a key of something that is not a dictionary".to_owned());
        };
        let (whole, rest) = pairs.as_chunks::<2>();
        if !rest.is_empty() {
            return Err("its pickle has a key without a value".to_owned());
        }
        let pairs = whole.iter().map(|[key, value]| (key.clone(), value.clone()));
        self.objects.dicts[*index].extend(pairs);
        Ok(())
    }

    /// Calls a function. Only the functions in [`Global`] are available.
    fn call(&mut self) -> Result<(), String> {
        let arguments = self.pop()?;
        let Value::Global(global) = self.pop()? else {
            return Err("its pickle calls something that is not a function".to_owned());
        };
        let arguments = self.objects.items(&arguments);
        let arguments = arguments.ok_or("its pickle calls a function without arguments")?;
        let value = match (global, arguments) {
            (Global::OrderedDict, []) => None,
            (Global::RebuildTensor, [storage, offset, shape, strides])
            | (Global::RebuildTensorV2, [storage, offset, shape, strides, _, _])
            | (Global::RebuildTensorV2, [storage, offset, shape, strides, _, _, _]) => {
                Some(self.tensor(storage, offset, shape, strides)?)
            }
            (Global::RebuildParameter, [tensor @ Value::Tensor(_), _, _]) => Some(tensor.clone()),
            _ => return Err(format!("its pickle calls {global:?} with unexpected arguments")),
        };
        match value {
            Some(value) => self.stack.push(value),
            None => self.dict(),
        }
        Ok(())
    }

    /// Sets attributes. State dicts have an attribute with version numbers, which is not needed.
    fn set_attributes(&mut self) -> Result<(), String> {
        let _state = self.pop()?;
        match self.stack.last() {
            Some(Value::Dict(_)) => Ok(()),
            _ => Err("its pickle sets attributes of something that is not a dictionary".to_owned()),
        }
    }

    fn tensor(
        &self,
        storage: &Value,
        offset: &Value,
        shape: &Value,
        strides: &Value,
    ) -> Result<Value, String> {
        let Value::Storage(storage) = storage else {
            return Err("its pickle has a tensor without a storage".to_owned());
        };
        let sizes = |list: &Value| {
            let sizes = self.objects.items(list)?.iter().map(size);
            sizes.collect::<Option<Vec<usize>>>()
        };
        let (Some(offset), Some(shape), Some(strides)) =
            (size(offset), sizes(shape), sizes(strides))
        else {
            return Err("its pickle has a tensor without a shape".to_owned());
        };
        TensorRef::new(storage.clone(), offset, shape, strides)
            .map(|tensor| Value::Tensor(Arc::new(tensor)))
    }

    /// Resolves a persistent id, which PyTorch only uses for storages.
    fn storage(&mut self, id: &Value) -> Result<Value, String> {
        match self.objects.items(id) {
            Some(
                [
                    Value::Text(kind),
                    Value::Global(Global::Storage(element)),
                    Value::Text(key),
                    _,
                    len,
                    rest @ ..,
                ],
            ) if &**kind == "storage" && matches!(rest, [] | [Value::None]) => {
                let len = size(len).ok_or("its pickle has a storage without a size")?;
                let storage = StorageRef { key: key.clone(), element: *element, len };
                self.objects.storages.insert(storage.key.clone(), element.size());
                Ok(Value::Storage(Arc::new(storage)))
            }
            _ => {
                Err("its pickle refers to something outside the file that is not a storage".into())
            }
        }
    }

    fn memorise(&mut self, operation: u8) -> Result<(), String> {
        let index = match operation {
            0x94 => self.memo.len() as u32,
            _ => self.memo_index(operation == b'q')?,
        };
        let value = self.stack.last().cloned().ok_or_else(empty)?;
        self.memo.insert(index, value);
        Ok(())
    }

    fn recall(&mut self, operation: u8) -> Result<(), String> {
        let index = self.memo_index(operation == b'h')?;
        let value = self.memo.get(&index).cloned();
        self.stack.push(value.ok_or("its pickle refers to an object that it does not contain")?);
        Ok(())
    }

    fn memo_index(&mut self, is_short: bool) -> Result<u32, String> {
        Ok(if is_short {
            u32::from(u8::from_le_bytes(self.array()?))
        } else {
            u32::from_le_bytes(self.array()?)
        })
    }

    /// Returns the lowest stack height that an operation may pop to.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Value, String> {
        if self.stack.len() <= self.floor() {
            return Err(empty());
        }
        self.stack.pop().ok_or_else(empty)
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<Value>, String> {
        match self.stack.len().checked_sub(count) {
            Some(start) if start >= self.floor() => Ok(self.stack.split_off(start)),
            _ => Err(empty()),
        }
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, String> {
        let mark = self.marks.pop().ok_or_else(empty)?;
        Ok(self.stack.split_off(mark))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or("its pickle is truncated or larger than 4 MiB")?;
        let bytes = &self.bytes[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("`take` returns the requested number of bytes"))
    }

    fn length(&mut self) -> Result<usize, String> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn line(&mut self) -> Result<String, String> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|byte| *byte == b'\n');
        let length = length.ok_or("its pickle is truncated")?;
        self.at += length + 1;
        Ok(String::from_utf8_lossy(&rest[..length]).into_owned())
    }
}

fn size(value: &Value) -> Option<usize> {
    match value {
        Value::Int(value) => usize::try_from(*value).ok(),
        _ => None,
    }
}

fn empty() -> String {
    "its pickle takes a value from an empty stack".to_owned()
}

/// Beginnings of the names of number formats that are refused.
const TYPES: [&str; 6] = ["float8_", "float4_", "uint16", "uint32", "uint64", "bits"];

/// Maximum number of characters of a refused name in an error message.
const NAME: usize = 80;

impl Global {
    fn named(module: &str, name: &str) -> Result<Self, String> {
        let storage = || Element::of_storage(name.strip_suffix("Storage")?).map(Self::Storage);
        let found = match (module, name) {
            ("collections", "OrderedDict") => Some(Self::OrderedDict),
            ("torch._utils", "_rebuild_tensor") => Some(Self::RebuildTensor),
            ("torch._utils", "_rebuild_tensor_v2") => Some(Self::RebuildTensorV2),
            ("torch._utils", "_rebuild_tensor_v3") => Some(Self::RebuildTensorV3),
            ("torch.storage", "UntypedStorage") => Some(Self::Storage(Element::U8)),
            ("torch._utils", "_rebuild_parameter") => Some(Self::RebuildParameter),
            ("torch", _) => storage(),
            _ => None,
        };
        found.ok_or_else(|| {
            let full: String = format!("{module}.{name}").chars().take(NAME).collect();
            if module == "torch" && TYPES.iter().any(|start| name.starts_with(start)) {
                return format!(
                    "it has tensors of the type {full}; supported: float32, bfloat16, float16; use the model's weights in one of these"
                );
            }
            format!(
                "it refers to `{full}`, which is not part of a state dict and could run code; if you trust the file, load it in Python and save only model.state_dict()"
            )
        })
    }
}
