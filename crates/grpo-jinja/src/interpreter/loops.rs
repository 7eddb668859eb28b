//! Loops and their variable `loop`.

use super::{Flow, Interpreter, assign};
use crate::arguments::Arguments;
use crate::operators::equal;
use crate::syntax::For;
use crate::value::{Loop, Result, Scope, Value, fail};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

impl Loop {
    /// Returns an attribute of `loop`.
    pub(crate) fn attribute(self: &Rc<Self>, name: &str) -> Result<Option<Value>> {
        let (index, length) = (self.index.get(), self.items.len());
        let method = |name| Value::Method(Rc::new(Value::Loop(Rc::clone(self))), name);
        Ok(Some(match name {
            "index" => (index + 1).into(),
            "index0" => index.into(),
            "revindex" => (length - index).into(),
            "revindex0" => (length - index - 1).into(),
            "first" => (index == 0).into(),
            "last" => (index + 1 == length).into(),
            "length" => length.into(),
            "depth" => (self.depth + 1).into(),
            "depth0" => self.depth.into(),
            "previtem" => match index.checked_sub(1) {
                Some(previous) => self.items[previous].clone(),
                None => Value::undefined("there is no previous item"),
            },
            "nextitem" => match self.items.get(index + 1) {
                Some(next) => next.clone(),
                None => Value::undefined("there is no next item"),
            },
            "cycle" => method("cycle"),
            "changed" => method("changed"),
            _ => return Ok(None),
        }))
    }

    /// Calls `loop.cycle` or `loop.changed`.
    pub(super) fn call(&self, name: &str, arguments: Arguments) -> Result<Value> {
        if !arguments.named.is_empty() {
            return fail(format!("{name}() takes no keyword arguments"));
        }
        let values = arguments.positional;
        if name == "cycle" {
            if values.is_empty() {
                return fail("no items for cycling given");
            }
            return Ok(values[self.index.get() % values.len()].clone());
        }
        let values = Value::tuple(values);
        let mut last = self.last.borrow_mut();
        let changed = match &*last {
            Some(last) => !equal(last, &values)?,
            None => true,
        };
        *last = Some(values);
        Ok(changed.into())
    }
}

impl Interpreter {
    pub(super) fn run_loop(
        &mut self,
        node: &Arc<For>,
        iterable: &Value,
        scope: &Rc<Scope>,
        depth: usize,
        out: &mut String,
    ) -> Result<()> {
        let mut items = vec![];
        for item in iterable.iterate()? {
            let item = item?;
            if let Some(condition) = &node.condition {
                let inner = Scope::new(Some(scope));
                assign(&node.target, item.clone(), &inner)?;
                if !self.value(condition, &inner)?.is_true() {
                    continue;
                }
            }
            items.push(item);
        }
        let recursion = node.recursive.then(|| (Arc::clone(node), Rc::clone(scope)));
        let (index, last) = (Cell::new(0), RefCell::new(None));
        let state = Rc::new(Loop { items, index, depth, last, recursion });
        let mut finished_once = false;
        for index in 0..state.items.len() {
            state.index.set(index);
            let inner = Scope::new(Some(scope));
            inner.set(&"loop".into(), Value::Loop(Rc::clone(&state)));
            assign(&node.target, state.items[index].clone(), &inner)?;
            match self.step(|interpreter| interpreter.run(&node.body, &inner, out))? {
                Flow::Next => finished_once = true,
                Flow::Continue => {}
                Flow::Break => break,
            }
        }
        // Jinja takes the branch also if each run of the body ended with `break` or `continue`.
        if !finished_once {
            let inner = Scope::new(Some(scope));
            self.run(&node.otherwise, &inner, out)?;
        }
        Ok(())
    }

    /// Calls `loop(iterable)` and returns its text.
    pub(super) fn call_loop(&mut self, state: &Loop, arguments: Arguments) -> Result<Value> {
        let Some((node, scope)) = &state.recursion else {
            return fail("The loop must have the 'recursive' marker to be called recursively.");
        };
        let bound = arguments.bind("loop", &["iterable"])?;
        let mut out = String::new();
        self.run_loop(node, bound.required(0)?, scope, state.depth + 1, &mut out)?;
        Ok(out.into())
    }
}
