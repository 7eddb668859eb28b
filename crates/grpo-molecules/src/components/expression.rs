//! Arithmetic expressions over the properties of other components.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use minijinja::{Environment, Expression as Compiled, UndefinedBehavior};

/// Maximum length of an expression in bytes. It also bounds the depth of the parser's recursion.
const MAX_LENGTH: usize = 500;

/// Names of all functions.
const FUNCTIONS: [&str; 6] = ["abs", "sqrt", "exp", "ln", "min", "max"];

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_function("abs", f64::abs);
    environment.add_function("sqrt", f64::sqrt);
    environment.add_function("exp", f64::exp);
    environment.add_function("ln", f64::ln);
    environment.add_function("min", f64::min);
    environment.add_function("max", f64::max);
    environment
});

/// An arithmetic expression in Jinja's syntax.
///
/// It supports `+ - * / // % **`, comparisons, `and`, `or`, `not`, `A if B else C`, and the
/// functions `abs`, `sqrt`, `exp`, `ln`, `min` and `max`. A comparison is 1 or 0.
pub(super) struct Expression {
    compiled: Compiled<'static, 'static>,
    /// Names of all preceding components.
    names: Vec<String>,
    /// Indices of the names that occur in the expression.
    used: Vec<usize>,
}

impl Expression {
    /// Compiles an expression over the components in `names`.
    pub(super) fn parse(text: &str, names: Vec<String>) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!(
                "the expression has {} bytes; expected at most {MAX_LENGTH}",
                text.len()
            ));
        }
        // Without text and lists, every value is a number, and no operation needs much memory.
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.+-*/%()<>=!, ".contains(c);
        if let Some((place, other)) = text.chars().enumerate().find(|(_, c)| !is_allowed(*c)) {
            return Err(format!(
                "invalid character {other:?} at position {} of the expression `{}`; use numbers, names, operators and parentheses",
                place + 1,
                text.escape_debug()
            ));
        }
        let compiled = ENVIRONMENT.compile_expression_owned(text.to_owned()).map_err(|error| {
            let detail = error.detail().unwrap_or("it cannot be parsed");
            format!("invalid expression `{text}`: {detail}")
        })?;
        let mut unknown: Vec<String> = compiled.undeclared_variables(false).into_iter().collect();
        let is_used = |index: &usize| unknown.contains(&names[*index]);
        let used = (0..names.len()).filter(is_used).collect();
        unknown.retain(|name| !names.contains(name) && !FUNCTIONS.contains(&name.as_str()));
        unknown.sort_unstable();
        match unknown.first() {
            Some(name) => Err(format!(
                "unknown name `{name}` in the expression `{text}`; the preceding components are {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )),
            None => Self { compiled, names, used }.tried(text),
        }
    }

    /// Evaluates the expression for a few values, because some errors, such as a missing argument,
    /// only occur then.
    fn tried(self, text: &str) -> Result<Self, String> {
        for value in [1.0, 0.25, -1.0] {
            self.of(&vec![value; self.names.len()])
                .map_err(|fault| format!("invalid expression `{text}`: {fault}"))?;
        }
        Ok(self)
    }

    /// Returns the indices of the components that the expression reads.
    pub(super) fn used(&self) -> &[usize] {
        &self.used
    }

    /// Evaluates the expression for the properties of all preceding components. Those that it does
    /// not read have no influence.
    pub(super) fn of(&self, values: &[f64]) -> Result<f64, String> {
        let context: BTreeMap<&str, f64> =
            self.names.iter().map(String::as_str).zip(values.iter().copied()).collect();
        let value = self.compiled.eval(context).map_err(|error| {
            format!("the expression failed: {}", error.detail().unwrap_or("invalid operation"))
        })?;
        match value.is_true() {
            truth if matches!(value.kind(), minijinja::value::ValueKind::Bool) => {
                Ok(f64::from(truth))
            }
            _ => f64::try_from(value).map_err(|_| "the expression is not a number".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["logp", "rings"].map(str::to_owned).to_vec()
    }

    fn value(text: &str) -> f64 {
        Expression::parse(text, names()).unwrap().of(&[2.5, 3.0]).unwrap()
    }

    #[test]
    fn values_by_hand() {
        for (text, expect) in [
            ("logp - 0.5 * rings", 1.0),
            ("(logp + rings) / 2", 2.75),
            ("7 / 2", 3.5),
            ("rings ** 2", 9.0),
            ("max(logp, rings) - min(logp, rings)", 0.5),
            ("abs(logp - rings) + sqrt(4)", 2.5),
            ("ln(exp(logp))", 2.5),
            ("rings > 2", 1.0),
            ("1 if logp > rings else 0.25", 0.25),
        ] {
            assert!((value(text) - expect).abs() < 1e-12, "{text}: {}", value(text));
        }
    }

    #[test]
    fn refuses_what_is_not_arithmetic() {
        for (text, words) in [
            ("logp +", "invalid expression"),
            ("'a' * 1000000000", "invalid character '\\'' at position 1"),
            ("[1, 2]", "invalid character '['"),
            ("range(9)", "unknown name `range`"),
            ("mw", "unknown name `mw`"),
            ("min()", "invalid expression `min()`: the expression failed"),
            ("abs(1, 2)", "invalid expression"),
            ("logp if logp > 0.5", "invalid expression"),
            ("logp.real", "invalid expression"),
            ("logp(1)", "invalid expression"),
            (&"(".repeat(501), "501 bytes"),
            (&"(".repeat(500), "invalid expression"),
            (&"not ".repeat(125), "invalid expression"),
        ] {
            let fault = Expression::parse(text, names()).err().expect(text);
            assert!(fault.contains(words), "{text}: {fault}");
        }
    }

    #[test]
    fn a_value_that_is_no_number_is_an_error() {
        for text in ["10.0 ** 400", "1 / 0.0"] {
            let value = Expression::parse(text, names()).and_then(|it| it.of(&[2.5, 3.0]));
            assert!(value.as_ref().map_or(true, |value| !value.is_finite()), "{text}: {value:?}");
        }
        assert!(Expression::parse("9999999999999999999 * 9 ** 40", names()).is_err());
    }
}
