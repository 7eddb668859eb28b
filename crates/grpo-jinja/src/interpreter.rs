//! Runs the statements of a template. Expressions are in [`expressions`].

mod expressions;
mod loops;
mod scope;

use crate::arguments::Arguments;
use crate::functions::check_attribute;
use crate::python_text::check_length;
use crate::syntax::{Call, Expr, Macro, Node, NodeKind, Target};
use crate::value::{Error, MacroValue, Result, Scope, Value, fail};
use std::rc::Rc;
use std::sync::Arc;

/// The number of statements and expressions that are evaluated, enough for thousands of messages
/// with hundreds of expressions each. It also bounds the running time.
const MOST_STEPS: u32 = 2_000_000;

/// The deepest nesting of statements, expressions and calls.
const DEEPEST: u32 = 3000;

/// Renders a template with these variables.
pub(crate) fn render(
    nodes: &[Node],
    variables: impl IntoIterator<Item = (String, serde_json::Value)>,
    is_strict: bool,
) -> Result<String> {
    let scope = Scope::new(None);
    for (name, value) in variables {
        scope.set(&name.into(), value.into());
    }
    let mut interpreter = Interpreter {
        steps: 0,
        depth: 0,
        is_strict,
        cyclic: vec![],
        scopes: vec![Rc::clone(&scope)],
    };
    let mut out = String::new();
    let result = interpreter.run(nodes, &scope, &mut out);
    interpreter.break_cycles();
    match result? {
        Flow::Next => Ok(out),
        _ => fail("'break' and 'continue' are allowed in loops only"),
    }
}

pub(crate) struct Interpreter {
    steps: u32,
    depth: u32,
    /// Whether an undefined value cannot be printed.
    is_strict: bool,
    /// Namespaces, which can contain themselves.
    cyclic: Vec<Value>,
    /// Scopes that macros refer to, and that contain the macros.
    scopes: Vec<Rc<Scope>>,
}

/// What follows a statement.
#[derive(Clone, Copy, PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl Interpreter {
    /// Empties what can refer to itself, which reference counting would keep forever.
    fn break_cycles(&mut self) {
        for scope in self.scopes.drain(..) {
            scope.clear();
        }
        for value in self.cyclic.drain(..) {
            if let Value::Namespace(attributes) = value {
                let values = std::mem::take(&mut *attributes.borrow_mut());
                drop(values);
            }
        }
    }

    /// Counts a step, and runs `work` one level deeper.
    fn step<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return fail(format!("the template evaluates more than {MOST_STEPS} expressions"));
        }
        if self.depth == DEEPEST {
            return fail("maximum recursion depth exceeded");
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    fn run(&mut self, nodes: &[Node], scope: &Rc<Scope>, out: &mut String) -> Result<Flow> {
        for node in nodes {
            let flow = self.step(|interpreter| interpreter.statement(node, scope, out));
            match flow.map_err(|error| error.at(node.line))? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    /// Runs a body in a scope of its own and returns its text.
    fn text_of(&mut self, nodes: &[Node], scope: &Rc<Scope>) -> Result<String> {
        let mut out = String::new();
        match self.run(nodes, &Scope::new(Some(scope)), &mut out)? {
            Flow::Next => Ok(out),
            _ => fail("'break' and 'continue' are allowed in loops only"),
        }
    }

    fn statement(&mut self, node: &Node, scope: &Rc<Scope>, out: &mut String) -> Result<Flow> {
        match &node.kind {
            NodeKind::Data(text) => push(out, text)?,
            NodeKind::Output(expression) => {
                let value = self.value(expression, scope)?;
                if let (true, Value::Undefined(reason)) = (self.is_strict, &value) {
                    return fail(&**reason);
                }
                match value.text() {
                    Some(text) => push(out, text)?,
                    None => push(out, &value.to_text()?)?,
                }
            }
            NodeKind::For(node) => {
                let iterable = self.value(&node.iterable, scope)?;
                self.run_loop(node, &iterable, scope, 0, out)?;
            }
            NodeKind::If(branches, otherwise) => {
                for (condition, body) in branches {
                    if self.value(condition, scope)?.is_true() {
                        return self.run(body, scope, out);
                    }
                }
                return self.run(otherwise, scope, out);
            }
            NodeKind::Set(target, expression) => {
                let value = self.value(expression, scope)?;
                assign(target, value, scope)?;
            }
            NodeKind::SetBlock(target, filters, body) => {
                let text = self.text_of(body, scope)?;
                let value = self.filtered(text.into(), filters, scope)?;
                assign(target, value, scope)?;
            }
            NodeKind::FilterBlock(filters, body) => {
                let text = self.text_of(body, scope)?;
                let value = self.filtered(text.into(), filters, scope)?;
                push(out, &value.to_text()?)?;
            }
            NodeKind::With(variables, body) => {
                let inner = Scope::new(Some(scope));
                for (target, expression) in variables {
                    let value = self.value(expression, scope)?;
                    assign(target, value, &inner)?;
                }
                return self.run(body, &inner, out);
            }
            NodeKind::Scope(body) => return self.run(body, &Scope::new(Some(scope)), out),
            NodeKind::Macro(definition) => {
                let value = self.macro_value(definition, scope);
                scope.set(&definition.name, value);
            }
            NodeKind::Call(callee, call, caller) => {
                let text = self.call_block(callee, call, caller, scope)?;
                push(out, &text)?;
            }
            NodeKind::Break => return Ok(Flow::Break),
            NodeKind::Continue => return Ok(Flow::Continue),
            NodeKind::Unsupported(tag) => {
                return fail(format!("the tag `{tag}` is not supported in chat templates"));
            }
        }
        Ok(Flow::Next)
    }

    fn macro_value(&mut self, definition: &Arc<Macro>, scope: &Rc<Scope>) -> Value {
        self.scopes.push(Rc::clone(scope));
        let (definition, scope) = (Arc::clone(definition), Rc::clone(scope));
        Value::Macro(Rc::new(MacroValue { definition, scope }))
    }

    fn call_block(
        &mut self,
        callee: &Expr,
        call: &Call,
        caller: &Arc<Macro>,
        scope: &Rc<Scope>,
    ) -> Result<String> {
        let callee = self.value(callee, scope)?;
        let mut arguments = self.arguments(call, scope)?;
        arguments.named.push(("caller".into(), self.macro_value(caller, scope)));
        self.call(&callee, arguments)?.to_text()
    }

    /// Calls a macro and returns its text.
    fn call_macro(&mut self, value: &MacroValue, arguments: Arguments) -> Result<Value> {
        let definition = &*value.definition;
        let name = &definition.name;
        let Arguments { positional, mut named } = arguments;
        let count = definition.parameters.len();
        let scope = Scope::new(Some(&value.scope));
        let mut take = |name: &str| {
            let at = named.iter().position(|(known, _)| **known == *name)?;
            Some(named.remove(at).1)
        };
        let mut given = positional.iter().take(count).cloned();
        for (parameter, default) in &definition.parameters {
            let value = match (given.next().or_else(|| take(parameter)), default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.value(default, &scope)?,
                (None, None) => {
                    Value::undefined(format!("parameter '{parameter}' was not provided"))
                }
            };
            scope.set(parameter, value);
        }
        let has_caller =
            definition.parameters.iter().any(|(parameter, _)| &**parameter == "caller");
        if definition.caller && !has_caller {
            let caller = take("caller").unwrap_or_else(|| Value::undefined("No caller defined"));
            scope.set(&"caller".into(), caller);
        }
        if definition.kwargs {
            let mut dict = crate::value::Dict::default();
            for (name, value) in named {
                dict.set_text(&name, value);
            }
            scope.set(&"kwargs".into(), Value::Dict(Rc::new(dict)));
        } else if let Some((unknown, _)) = named.first() {
            return fail(format!("macro '{name}' takes no keyword argument '{unknown}'"));
        }
        if definition.varargs {
            let rest = positional.get(count..).unwrap_or_default().to_vec();
            scope.set(&"varargs".into(), Value::tuple(rest));
        } else if positional.len() > count {
            return fail(format!("macro '{name}' takes not more than {count} argument(s)"));
        }
        let mut out = String::new();
        match self.run(&definition.body, &scope, &mut out)? {
            Flow::Next => Ok(out.into()),
            _ => fail("'break' and 'continue' are allowed in loops only"),
        }
    }
}

fn push(out: &mut String, text: &str) -> Result<()> {
    check_length(out.len() + text.len())?;
    out.push_str(text);
    Ok(())
}

/// Assigns a value in a scope.
fn assign(target: &Target, value: Value, scope: &Rc<Scope>) -> Result<()> {
    match target {
        Target::Name(name) => scope.set(name, value),
        Target::Attribute(name, attribute) => {
            let Some(Value::Namespace(attributes)) = scope.get(name) else {
                return fail("cannot assign attribute on non-namespace object");
            };
            check_attribute(attribute)?;
            let mut attributes = attributes.borrow_mut();
            let replaced = match attributes.iter_mut().find(|(known, _)| known == attribute) {
                Some((_, old)) => std::mem::replace(old, value),
                None => {
                    attributes.push((attribute.clone(), value));
                    Value::None
                }
            };
            // Dropping the old value could need the attributes.
            drop(attributes);
            drop(replaced);
        }
        Target::Tuple(targets) => {
            if !value.is_iterable() {
                return Err(Error::new(format!(
                    "cannot unpack non-iterable {} object",
                    value.type_name()
                )));
            }
            let items = value.items()?;
            let (expected, found) = (targets.len(), items.len());
            if found > expected {
                return fail(format!("too many values to unpack (expected {expected})"));
            }
            if found < expected {
                return fail(format!(
                    "not enough values to unpack (expected {expected}, got {found})"
                ));
            }
            for (target, item) in targets.iter().zip(items) {
                assign(target, item, scope)?;
            }
        }
    }
    Ok(())
}
