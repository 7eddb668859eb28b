//! Scopes of variables.

use crate::value::{Scope, Value};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

impl Scope {
    pub(crate) fn new(parent: Option<&Rc<Scope>>) -> Rc<Self> {
        Rc::new(Self { variables: RefCell::default(), parent: parent.cloned() })
    }

    pub(crate) fn set(&self, name: &Arc<str>, value: Value) {
        let replaced = self.variables.borrow_mut().insert(Arc::clone(name), value);
        drop(replaced);
    }

    /// Returns the variable of this scope or one around it.
    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        let mut scope = self;
        loop {
            if let Some(value) = scope.variables.borrow().get(name) {
                return Some(value.clone());
            }
            scope = scope.parent.as_deref()?;
        }
    }

    /// Removes all variables.
    pub(super) fn clear(&self) {
        let variables = std::mem::take(&mut *self.variables.borrow_mut());
        drop(variables);
    }
}
