//! Parses expressions, with Jinja's precedences.

use super::{Parser, described};
use crate::lexer::Token;
use crate::syntax::{Call, Comparison, Expr, FilterCall, Operator};
use crate::value::{Result, fail};

/// The height of the highest tree of an expression. Each operator in a row adds one level.
const HIGHEST: usize = 400;

impl Parser {
    /// Parses an expression, or a tuple if there are commas. `ends` are names that end it.
    pub(super) fn tuple(&mut self, with_condition: bool, ends: &[&str]) -> Result<Expr> {
        let mut items = vec![];
        let mut is_tuple = false;
        loop {
            if self.is_tuple_end() || ends.iter().any(|end| self.is_name(end)) {
                break;
            }
            items.push(self.expression(with_condition)?);
            if !self.skip_operator(",") {
                break;
            }
            is_tuple = true;
        }
        match items.pop() {
            Some(item) if !is_tuple => Ok(item),
            Some(last) => {
                items.push(last);
                Ok(Expr::Tuple(items))
            }
            None => fail(format!("Expected an expression, got {}", described(self.current()))),
        }
    }

    fn is_tuple_end(&self) -> bool {
        self.is_operator(")") || matches!(self.current(), Token::BlockEnd | Token::VariableEnd)
    }

    pub(super) fn expression(&mut self, with_condition: bool) -> Result<Expr> {
        self.open += 1;
        let parse = if with_condition { Self::conditional } else { Self::or };
        let expression = self.nested(parse)?;
        self.open -= 1;
        if self.open == 0 && height(&expression) > HIGHEST {
            return fail(format!("the expression is nested more than {HIGHEST} deep"));
        }
        Ok(expression)
    }

    fn conditional(&mut self) -> Result<Expr> {
        let mut value = self.or()?;
        while self.skip_name("if") {
            let condition = Box::new(self.or()?);
            let otherwise = match self.skip_name("else") {
                true => Some(Box::new(self.nested(Self::conditional)?)),
                false => None,
            };
            value = Expr::If { condition, value: Box::new(value), otherwise };
        }
        Ok(value)
    }

    /// Parses operands with one of the operators between them, from the left.
    fn chain(
        &mut self,
        operand: fn(&mut Self) -> Result<Expr>,
        operator: impl Fn(&mut Self) -> Option<Operator>,
    ) -> Result<Expr> {
        let mut left = operand(self)?;
        while let Some(operator) = operator(self) {
            left = Expr::Binary(operator, Box::new(left), Box::new(operand(self)?));
        }
        Ok(left)
    }

    fn or(&mut self) -> Result<Expr> {
        let mut operands = vec![self.and()?];
        while self.skip_name("or") {
            operands.push(self.and()?);
        }
        Ok(folded(operands, Expr::Or))
    }

    fn and(&mut self) -> Result<Expr> {
        let mut operands = vec![self.not()?];
        while self.skip_name("and") {
            operands.push(self.not()?);
        }
        Ok(folded(operands, Expr::And))
    }

    fn not(&mut self) -> Result<Expr> {
        if self.skip_name("not") {
            return Ok(Expr::Not(Box::new(self.nested(Self::not)?)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expr> {
        let first = self.sum()?;
        let mut rest = vec![];
        loop {
            let comparison = match self.current() {
                Token::Operator("==") => Comparison::Eq,
                Token::Operator("!=") => Comparison::Ne,
                Token::Operator("<") => Comparison::Lt,
                Token::Operator("<=") => Comparison::Le,
                Token::Operator(">") => Comparison::Gt,
                Token::Operator(">=") => Comparison::Ge,
                Token::Name(name) if name == "in" => Comparison::In,
                Token::Name(name) if name == "not" => match self.ahead() {
                    Token::Name(name) if name == "in" => {
                        self.next();
                        Comparison::NotIn
                    }
                    _ => break,
                },
                _ => break,
            };
            self.next();
            rest.push((comparison, self.sum()?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Compare(Box::new(first), rest) })
    }

    fn sum(&mut self) -> Result<Expr> {
        self.chain(Self::concatenation, |parser| {
            let operator = match parser.current() {
                Token::Operator("+") => Operator::Add,
                Token::Operator("-") => Operator::Sub,
                _ => return None,
            };
            parser.next();
            Some(operator)
        })
    }

    fn concatenation(&mut self) -> Result<Expr> {
        let mut operands = vec![self.product()?];
        while self.skip_operator("~") {
            operands.push(self.product()?);
        }
        Ok(match operands.pop() {
            Some(single) if operands.is_empty() => single,
            last => {
                operands.extend(last);
                Expr::Concat(operands)
            }
        })
    }

    fn product(&mut self) -> Result<Expr> {
        self.chain(Self::power, |parser| {
            let operator = match parser.current() {
                Token::Operator("*") => Operator::Mul,
                Token::Operator("/") => Operator::Div,
                Token::Operator("//") => Operator::FloorDiv,
                Token::Operator("%") => Operator::Mod,
                _ => return None,
            };
            parser.next();
            Some(operator)
        })
    }

    fn power(&mut self) -> Result<Expr> {
        self.chain(
            |parser| parser.unary(true),
            |parser| parser.skip_operator("**").then_some(Operator::Pow),
        )
    }

    fn unary(&mut self, with_filters: bool) -> Result<Expr> {
        let value = if self.skip_operator("-") {
            Expr::Negative(Box::new(self.nested(|parser| parser.unary(false))?))
        } else if self.skip_operator("+") {
            Expr::Positive(Box::new(self.nested(|parser| parser.unary(false))?))
        } else {
            self.primary()?
        };
        let value = self.postfix(value)?;
        if with_filters { self.filtered(value) } else { Ok(value) }
    }

    fn primary(&mut self) -> Result<Expr> {
        let token = self.next();
        Ok(match token {
            Token::Name(name) => match &*name {
                "true" | "True" => Expr::Bool(true),
                "false" | "False" => Expr::Bool(false),
                "none" | "None" => Expr::None,
                _ => Expr::Name(name.into()),
            },
            Token::Str(mut text) => {
                while let Token::Str(more) = self.current() {
                    text.push_str(more);
                    self.next();
                }
                Expr::Str(text.into())
            }
            Token::Int(number) => Expr::Int(number),
            Token::Float(number) => Expr::Float(number),
            Token::Operator("(") => {
                if self.skip_operator(")") {
                    return Ok(Expr::Tuple(vec![]));
                }
                let value = self.tuple(true, &[])?;
                self.expect_operator(")")?;
                value
            }
            Token::Operator("[") => {
                let mut items = vec![];
                while !self.is_operator("]") {
                    items.push(self.expression(true)?);
                    if !self.is_operator("]") {
                        self.expect_operator(",")?;
                    }
                }
                self.next();
                Expr::List(items)
            }
            Token::Operator("{") => {
                let mut entries = vec![];
                while !self.is_operator("}") {
                    let key = self.expression(true)?;
                    self.expect_operator(":")?;
                    entries.push((key, self.expression(true)?));
                    if !self.is_operator("}") {
                        self.expect_operator(",")?;
                    }
                }
                self.next();
                Expr::Dict(entries)
            }
            other => {
                self.position = self.position.saturating_sub(usize::from(other != Token::End));
                return fail(format!("unexpected {}", described(&other)));
            }
        })
    }

    /// Parses attributes, items and calls behind a value.
    fn postfix(&mut self, mut value: Expr) -> Result<Expr> {
        loop {
            value = match self.current() {
                Token::Operator(".") => {
                    self.next();
                    match self.next() {
                        Token::Name(name) => Expr::Attribute(Box::new(value), name.into()),
                        Token::Int(index) => {
                            Expr::Item(Box::new(value), Box::new(Expr::Int(index)))
                        }
                        _ => {
                            self.position -= 1;
                            return fail("expected name or number");
                        }
                    }
                }
                Token::Operator("[") => {
                    self.next();
                    self.subscript(value)?
                }
                Token::Operator("(") => {
                    Expr::Call(Box::new(value), Box::new(self.call_arguments()?))
                }
                _ => return Ok(value),
            };
        }
    }

    fn subscript(&mut self, value: Expr) -> Result<Expr> {
        let mut bounds = [None, None, None];
        let mut position = 0;
        let mut items = vec![];
        while !self.is_operator("]") {
            if self.skip_operator(":") {
                position += 1;
                if position > 2 {
                    return fail("a slice has at most three parts");
                }
            } else if self.skip_operator(",") {
                items.extend(bounds[0].take());
            } else if bounds[position].is_none() {
                bounds[position] = Some(self.expression(true)?);
            } else {
                return fail(format!("expected token ',', got {}", described(self.current())));
            }
        }
        self.next();
        if position > 0 {
            if !items.is_empty() {
                return fail("slices in several dimensions are not supported");
            }
            return Ok(Expr::Slice(Box::new(value), Box::new(bounds)));
        }
        let [last, ..] = bounds;
        let index = match last {
            Some(index) if items.is_empty() => index,
            last => {
                items.extend(last);
                Expr::Tuple(items)
            }
        };
        Ok(Expr::Item(Box::new(value), Box::new(index)))
    }

    /// Parses filters, tests and calls behind a value.
    fn filtered(&mut self, mut value: Expr) -> Result<Expr> {
        loop {
            value = if self.skip_operator("|") {
                let filter = self.filter_call()?;
                Expr::Filter(Box::new(value), Box::new(filter))
            } else if self.skip_name("is") {
                self.test(value)?
            } else if self.is_operator("(") {
                Expr::Call(Box::new(value), Box::new(self.call_arguments()?))
            } else {
                return Ok(value);
            };
        }
    }

    fn test(&mut self, value: Expr) -> Result<Expr> {
        let negated = self.skip_name("not");
        let name = self.dotted_name()?;
        let has_argument = match self.current() {
            Token::Name(name) if name == "is" => {
                return fail("You cannot chain multiple tests with is");
            }
            Token::Name(name) => !matches!(&**name, "else" | "or" | "and"),
            Token::Str(_) | Token::Int(_) | Token::Float(_) | Token::Operator("[" | "{") => true,
            _ => false,
        };
        let arguments = if self.is_operator("(") {
            self.call_arguments()?
        } else if has_argument {
            let argument = self.nested(Self::primary)?;
            Call { positional: vec![self.postfix(argument)?], ..Call::default() }
        } else {
            Call::default()
        };
        let test = Expr::Test(Box::new(value), Box::new(FilterCall { name, arguments }));
        Ok(if negated { Expr::Not(Box::new(test)) } else { test })
    }

    pub(super) fn call_arguments(&mut self) -> Result<Call> {
        let mut call = Call::default();
        self.expect_operator("(")?;
        let invalid = || fail("invalid syntax for function call expression");
        while !self.is_operator(")") {
            let is_plain = call.more_positional.is_none() && call.more_named.is_none();
            if self.skip_operator("*") {
                if !is_plain {
                    return invalid();
                }
                call.more_positional = Some(self.expression(true)?);
            } else if self.skip_operator("**") {
                if call.more_named.is_some() {
                    return invalid();
                }
                call.more_named = Some(self.expression(true)?);
            } else if matches!(self.current(), Token::Name(_))
                && *self.ahead() == Token::Operator("=")
            {
                if call.more_named.is_some() {
                    return invalid();
                }
                let name = self.expect_name()?;
                self.next();
                call.named.push((name, self.expression(true)?));
            } else {
                if !is_plain || !call.named.is_empty() {
                    return invalid();
                }
                call.positional.push(self.expression(true)?);
            }
            if !self.is_operator(")") {
                self.expect_operator(",")?;
            }
        }
        self.next();
        Ok(call)
    }
}

/// Combines operands from the right, which gives the same value for `and` and `or`.
fn folded(operands: Vec<Expr>, combine: fn(Box<Expr>, Box<Expr>) -> Expr) -> Expr {
    let mut operands = operands.into_iter().rev();
    let last = operands.next().unwrap_or(Expr::None);
    operands.fold(last, |right, left| combine(Box::new(left), Box::new(right)))
}

/// Returns the height of the tree, because walks over it and dropping it are recursive.
fn height(expression: &Expr) -> usize {
    let of_call = |call: &Call| -> usize {
        let named = call.named.iter().map(|(_, value)| value);
        let more = call.more_positional.iter().chain(&call.more_named);
        call.positional.iter().chain(named).chain(more).map(height).max().unwrap_or(0)
    };
    let highest = |items: &[Expr]| items.iter().map(height).max().unwrap_or(0);
    1 + match expression {
        Expr::None
        | Expr::Bool(_)
        | Expr::Int(_)
        | Expr::Float(_)
        | Expr::Str(_)
        | Expr::Name(_) => 0,
        Expr::List(items) | Expr::Tuple(items) | Expr::Concat(items) => highest(items),
        Expr::Dict(entries) => {
            entries.iter().map(|(key, value)| height(key).max(height(value))).max().unwrap_or(0)
        }
        Expr::Attribute(value, _)
        | Expr::Not(value)
        | Expr::Negative(value)
        | Expr::Positive(value) => height(value),
        Expr::Item(a, b) | Expr::And(a, b) | Expr::Or(a, b) | Expr::Binary(_, a, b) => {
            height(a).max(height(b))
        }
        Expr::Slice(value, bounds) => {
            bounds.iter().flatten().map(height).max().unwrap_or(0).max(height(value))
        }
        Expr::Call(value, call) => height(value).max(of_call(call)),
        Expr::Filter(value, filter) | Expr::Test(value, filter) => {
            height(value).max(of_call(&filter.arguments))
        }
        Expr::If { condition, value, otherwise } => {
            let otherwise = otherwise.as_ref().map_or(0, |otherwise| height(otherwise));
            height(condition).max(height(value)).max(otherwise)
        }
        Expr::Compare(first, rest) => {
            rest.iter().map(|(_, value)| height(value)).max().unwrap_or(0).max(height(first))
        }
    }
}
