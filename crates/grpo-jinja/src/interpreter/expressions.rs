//! Evaluates expressions.

use super::Interpreter;
use crate::access;
use crate::arguments::Arguments;
use crate::checks;
use crate::filters;
use crate::functions;
use crate::methods;
use crate::operators::{binary, compare, signed};
use crate::python_text::check_length;
use crate::syntax::{Call, Expr, FilterCall};
use crate::value::{Dict, Result, Scope, Value, fail};
use std::rc::Rc;
use std::sync::Arc;

impl Interpreter {
    /// Returns the value of an expression.
    pub(super) fn value(&mut self, expression: &Expr, scope: &Rc<Scope>) -> Result<Value> {
        self.step(|interpreter| interpreter.evaluate(expression, scope))
    }

    fn values(&mut self, expressions: &[Expr], scope: &Rc<Scope>) -> Result<Vec<Value>> {
        expressions.iter().map(|expression| self.value(expression, scope)).collect()
    }

    fn evaluate(&mut self, expression: &Expr, scope: &Rc<Scope>) -> Result<Value> {
        Ok(match expression {
            Expr::None => Value::None,
            Expr::Bool(truth) => Value::Bool(*truth),
            Expr::Int(number) => Value::Int(*number),
            Expr::Float(number) => Value::Float(*number),
            Expr::Str(text) => Value::Str(Arc::clone(text)),
            Expr::Name(name) => match scope.get(name).or_else(|| functions::function(name)) {
                Some(value) => value,
                None => Value::undefined(format!("'{name}' is undefined")),
            },
            Expr::List(items) => self.values(items, scope)?.into(),
            Expr::Tuple(items) => Value::tuple(self.values(items, scope)?),
            Expr::Dict(entries) => {
                let mut dict = Dict::default();
                for (key, value) in entries {
                    let key = self.value(key, scope)?;
                    dict.set(key, self.value(value, scope)?)?;
                }
                Value::Dict(Rc::new(dict))
            }
            Expr::Attribute(value, name) => access::attribute(&self.value(value, scope)?, name)?,
            Expr::Item(value, key) => {
                let value = self.value(value, scope)?;
                access::item(&value, &self.value(key, scope)?)?
            }
            Expr::Slice(value, bounds) => {
                let value = self.value(value, scope)?;
                let mut evaluated = [Value::None, Value::None, Value::None];
                for (at, bound) in bounds.iter().enumerate() {
                    if let Some(bound) = bound {
                        evaluated[at] = self.value(bound, scope)?;
                    }
                }
                access::slice(&value, evaluated)?
            }
            Expr::Call(callee, call) => {
                let callee = self.value(callee, scope)?;
                let arguments = self.arguments(call, scope)?;
                self.call(&callee, arguments)?
            }
            Expr::Filter(value, filter) => {
                let value = self.value(value, scope)?;
                let arguments = self.arguments(&filter.arguments, scope)?;
                filters::apply(&filter.name, &value, arguments)?
            }
            Expr::Test(value, test) => {
                let value = self.value(value, scope)?;
                let arguments = self.arguments(&test.arguments, scope)?;
                checks::test(&test.name, &value, arguments)?
            }
            _ => return self.operation(expression, scope),
        })
    }

    fn operation(&mut self, expression: &Expr, scope: &Rc<Scope>) -> Result<Value> {
        Ok(match expression {
            Expr::Not(value) => Value::Bool(!self.value(value, scope)?.is_true()),
            Expr::Negative(value) => signed(&self.value(value, scope)?, true)?,
            Expr::Positive(value) => signed(&self.value(value, scope)?, false)?,
            Expr::And(left, right) => {
                let left = self.value(left, scope)?;
                if left.is_true() { self.value(right, scope)? } else { left }
            }
            Expr::Or(left, right) => {
                let left = self.value(left, scope)?;
                if left.is_true() { left } else { self.value(right, scope)? }
            }
            Expr::If { condition, value, otherwise } => {
                match (self.value(condition, scope)?.is_true(), otherwise) {
                    (true, _) => self.value(value, scope)?,
                    (false, Some(otherwise)) => self.value(otherwise, scope)?,
                    (false, None) => Value::undefined(
                        "the inline if-expression evaluated to false and no else section was defined.",
                    ),
                }
            }
            Expr::Binary(operator, left, right) => {
                let left = self.value(left, scope)?;
                binary(*operator, &left, &self.value(right, scope)?)?
            }
            Expr::Compare(first, rest) => {
                let mut left = self.value(first, scope)?;
                for (comparison, right) in rest {
                    let right = self.value(right, scope)?;
                    if !compare(*comparison, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Value::Bool(true)
            }
            Expr::Concat(operands) => {
                let mut out = String::new();
                for value in self.values(operands, scope)? {
                    let text = value.to_text()?;
                    check_length(out.len() + text.len())?;
                    out.push_str(&text);
                }
                out.into()
            }
            _ => return fail("the expression is not supported"),
        })
    }

    /// Evaluates the arguments of a call.
    pub(super) fn arguments(&mut self, call: &Call, scope: &Rc<Scope>) -> Result<Arguments> {
        let mut positional = self.values(&call.positional, scope)?;
        let mut named = vec![];
        for (name, value) in &call.named {
            named.push((Arc::clone(name), self.value(value, scope)?));
        }
        if let Some(more) = &call.more_positional {
            positional.extend(self.value(more, scope)?.items()?);
        }
        if let Some(more) = &call.more_named {
            let Value::Dict(dict) = self.value(more, scope)? else {
                return fail("argument after ** must be a mapping");
            };
            for (name, value) in dict.entries() {
                let Some(name) = name.text() else { return fail("keywords must be strings") };
                named.push((Arc::clone(name), value.clone()));
            }
        }
        Ok(Arguments { positional, named })
    }

    /// Applies filters one after the other.
    pub(super) fn filtered(
        &mut self,
        value: Value,
        calls: &[FilterCall],
        scope: &Rc<Scope>,
    ) -> Result<Value> {
        let mut value = value;
        for filter in calls {
            let arguments = self.arguments(&filter.arguments, scope)?;
            value = filters::apply(&filter.name, &value, arguments)?;
        }
        Ok(value)
    }

    /// Calls a value.
    pub(super) fn call(&mut self, callee: &Value, arguments: Arguments) -> Result<Value> {
        match callee {
            Value::Undefined(reason) => fail(&**reason),
            Value::Function(name) => {
                let value = functions::call(name, arguments)?;
                if let Value::Namespace(_) = value {
                    self.cyclic.push(value.clone());
                }
                Ok(value)
            }
            Value::Method(value, name) => match &**value {
                Value::Loop(state) => state.call(name, arguments),
                value => methods::call(value, name, arguments),
            },
            Value::Macro(value) => {
                self.step(|interpreter| interpreter.call_macro(value, arguments))
            }
            Value::Loop(state) => self.step(|interpreter| interpreter.call_loop(state, arguments)),
            Value::Joiner(joiner) => {
                arguments.bind("joiner", &[])?;
                let was_called = std::mem::replace(&mut *joiner.1.borrow_mut(), true);
                Ok(if was_called { joiner.0.clone() } else { "".into() })
            }
            _ => fail(format!("'{}' object is not callable", callee.type_name())),
        }
    }
}
