//! Parses statements. Expressions are in [`expressions`].

mod expressions;

use crate::lexer::{Token, tokens};
use crate::syntax::{Call, Expr, FilterCall, For, Macro, Node, NodeKind, Target, Text};
use crate::value::{Error, Result, fail};
use std::sync::Arc;

/// The deepest nesting of tags and expressions. CPython refuses more than 20 nested loops and 200
/// nested brackets.
const DEEPEST: usize = 120;

pub(crate) fn parse(source: &str) -> Result<Vec<Node>> {
    let tokens = tokens(source)?;
    let mut parser = Parser { tokens, position: 0, depth: 0, open: 0 };
    let nodes = parser.nodes(&[]);
    let line = parser.line();
    nodes.map_err(|error| error.at(line))
}

pub(crate) struct Parser {
    tokens: Vec<(u32, Token)>,
    position: usize,
    depth: usize,
    /// How many expressions are being parsed, one inside the other.
    open: usize,
}

impl Parser {
    fn line(&self) -> u32 {
        self.tokens[self.position].0
    }

    fn current(&self) -> &Token {
        &self.tokens[self.position].1
    }

    fn ahead(&self) -> &Token {
        &self.tokens[(self.position + 1).min(self.tokens.len() - 1)].1
    }

    /// Returns the current token and moves on. The last token stays.
    fn next(&mut self) -> Token {
        let token = self.current().clone();
        self.position = (self.position + 1).min(self.tokens.len() - 1);
        token
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.current(), Token::Name(found) if found == name)
    }

    fn is_operator(&self, sign: &str) -> bool {
        matches!(self.current(), Token::Operator(found) if *found == sign)
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        if found {
            self.next();
        }
        found
    }

    fn skip_operator(&mut self, sign: &str) -> bool {
        let found = self.is_operator(sign);
        if found {
            self.next();
        }
        found
    }

    fn expect_operator(&mut self, sign: &str) -> Result<()> {
        if self.skip_operator(sign) {
            return Ok(());
        }
        fail(format!("expected token '{sign}', got {}", described(self.current())))
    }

    fn expect_name(&mut self) -> Result<Text> {
        match self.next() {
            Token::Name(name) => Ok(name.into()),
            other => {
                self.position -= 1;
                fail(format!("expected token 'name', got {}", described(&other)))
            }
        }
    }

    fn expect_block_end(&mut self) -> Result<()> {
        match self.current() {
            Token::BlockEnd => {
                self.next();
                Ok(())
            }
            other => {
                fail(format!("expected token 'end of statement block', got {}", described(other)))
            }
        }
    }

    /// Runs `parse` one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return fail(format!("tags or expressions are nested more than {DEEPEST} deep"));
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Parses text and tags up to a tag with one of the names in `ends`, which becomes the current
    /// token, or up to the end of the template if there are none.
    fn nodes(&mut self, ends: &[&str]) -> Result<Vec<Node>> {
        let mut nodes = vec![];
        loop {
            let line = self.line();
            match self.next() {
                Token::Data(text) => nodes.push(Node { line, kind: NodeKind::Data(text.into()) }),
                Token::VariableBegin => {
                    let expression = self.tuple(true, &[])?;
                    if self.next() != Token::VariableEnd {
                        self.position -= 1;
                        let found = described(self.current());
                        return fail(format!(
                            "expected token 'end of print statement', got {found}"
                        ));
                    }
                    nodes.push(Node { line, kind: NodeKind::Output(expression) });
                }
                Token::BlockBegin => {
                    if ends.iter().any(|end| self.is_name(end)) {
                        return Ok(nodes);
                    }
                    let line = self.line();
                    let kind = self.nested(|parser| parser.statement(ends))?;
                    self.expect_block_end()?;
                    nodes.extend(kind.into_iter().map(|kind| Node { line, kind }));
                }
                _ if ends.is_empty() => return Ok(nodes),
                _ => {
                    let ends = ends.join("' or '");
                    return fail(format!(
                        "Unexpected end of template. Jinja was looking for the following tags: '{ends}'."
                    ));
                }
            }
        }
    }

    /// Parses the end of a tag and its body up to a tag with one of the names in `ends`.
    fn body(&mut self, ends: &[&str]) -> Result<Vec<Node>> {
        self.skip_operator(":");
        self.expect_block_end()?;
        self.nodes(ends)
    }

    /// Parses a body up to the tag `end`, and the name of that tag.
    fn whole_body(&mut self, end: &str) -> Result<Vec<Node>> {
        let body = self.body(&[end])?;
        self.next();
        Ok(body)
    }

    fn statement(&mut self, ends: &[&str]) -> Result<Vec<NodeKind>> {
        let Token::Name(name) = self.next() else {
            self.position -= 1;
            return fail("tag name expected");
        };
        Ok(vec![match &*name {
            "for" => self.for_loop()?,
            "if" => self.condition()?,
            "set" => self.set()?,
            "with" => self.with()?,
            "macro" => {
                let name = self.expect_name()?;
                NodeKind::Macro(Arc::new(self.macro_after_name(name)?))
            }
            "call" => self.call_block()?,
            "filter" => {
                let mut filters = vec![self.filter_call()?];
                filters.extend(self.filters()?);
                NodeKind::FilterBlock(filters, self.whole_body("endfilter")?)
            }
            "generation" => NodeKind::Scope(self.whole_body("endgeneration")?),
            "block" => {
                let name = self.expect_name()?;
                self.skip_name("scoped");
                let body = self.whole_body("endblock")?;
                self.skip_name(&name);
                NodeKind::Scope(body)
            }
            "print" => {
                let mut nodes = vec![];
                while *self.current() != Token::BlockEnd {
                    if !nodes.is_empty() {
                        self.expect_operator(",")?;
                    }
                    nodes.push(NodeKind::Output(self.expression(true)?));
                }
                return Ok(nodes);
            }
            "break" => NodeKind::Break,
            "continue" => NodeKind::Continue,
            "autoescape" => {
                self.expression(true)?;
                self.whole_body("endautoescape")?;
                NodeKind::Unsupported("autoescape")
            }
            "include" | "import" | "from" | "extends" => {
                while !matches!(self.current(), Token::BlockEnd | Token::End) {
                    self.next();
                }
                NodeKind::Unsupported(match &*name {
                    "include" => "include",
                    "import" => "import",
                    "from" => "from",
                    _ => "extends",
                })
            }
            _ => {
                self.position -= 1;
                let looking = match ends {
                    [] => String::new(),
                    _ => {
                        let ends = ends.join("' or '");
                        format!(" Jinja was looking for the following tags: '{ends}'.")
                    }
                };
                return fail(format!("Encountered unknown tag '{name}'.{looking}"));
            }
        }])
    }

    fn for_loop(&mut self) -> Result<NodeKind> {
        let target = self.target(&["in"], false)?;
        if !self.skip_name("in") {
            return fail(format!("expected token 'in', got {}", described(self.current())));
        }
        let iterable = self.tuple(false, &["recursive"])?;
        let condition = if self.skip_name("if") { Some(self.expression(true)?) } else { None };
        let recursive = self.skip_name("recursive");
        let body = self.body(&["endfor", "else"])?;
        let is_end = self.is_name("endfor");
        self.next();
        let otherwise = if is_end { vec![] } else { self.whole_body("endfor")? };
        let node = For { target, iterable, condition, recursive, body, otherwise };
        Ok(NodeKind::For(Arc::new(node)))
    }

    fn condition(&mut self) -> Result<NodeKind> {
        let mut branches = vec![];
        loop {
            let test = self.tuple(false, &[])?;
            branches.push((test, self.body(&["elif", "else", "endif"])?));
            if self.skip_name("elif") {
                continue;
            }
            let otherwise = match self.skip_name("else") {
                true => self.whole_body("endif")?,
                false => {
                    self.next();
                    vec![]
                }
            };
            return Ok(NodeKind::If(branches, otherwise));
        }
    }

    fn set(&mut self) -> Result<NodeKind> {
        let target = self.target(&[], true)?;
        if self.skip_operator("=") {
            return Ok(NodeKind::Set(target, self.tuple(true, &[])?));
        }
        let filters = self.filters()?;
        Ok(NodeKind::SetBlock(target, filters, self.whole_body("endset")?))
    }

    fn with(&mut self) -> Result<NodeKind> {
        let mut variables = vec![];
        while !matches!(self.current(), Token::BlockEnd | Token::End) {
            if !variables.is_empty() {
                self.expect_operator(",")?;
            }
            let target = self.target(&[], false)?;
            self.expect_operator("=")?;
            variables.push((target, self.expression(true)?));
        }
        Ok(NodeKind::With(variables, self.whole_body("endwith")?))
    }

    fn call_block(&mut self) -> Result<NodeKind> {
        let parameters = if self.is_operator("(") { self.parameters()? } else { vec![] };
        let Expr::Call(callee, arguments) = self.expression(true)? else {
            return fail("expected call");
        };
        let start = self.position;
        let body = self.whole_body("endcall")?;
        let caller = self.macro_of("caller".into(), parameters, body, start);
        Ok(NodeKind::Call(*callee, *arguments, Arc::new(caller)))
    }

    fn macro_after_name(&mut self, name: Text) -> Result<Macro> {
        let parameters = self.parameters()?;
        let start = self.position;
        let body = self.whole_body("endmacro")?;
        Ok(self.macro_of(name, parameters, body, start))
    }

    /// Creates a macro whose body starts at the token `start`.
    fn macro_of(
        &self,
        name: Text,
        parameters: Vec<(Text, Option<Expr>)>,
        body: Vec<Node>,
        start: usize,
    ) -> Macro {
        let tokens = &self.tokens[start..self.position];
        let mentions = |name: &str| {
            let is = |pair: &[(u32, Token)]| {
                matches!(&pair[1].1, Token::Name(found) if found == name)
                    && pair[0].1 != Token::Operator(".")
            };
            tokens.windows(2).any(is)
        };
        let (varargs, kwargs, caller) =
            (mentions("varargs"), mentions("kwargs"), mentions("caller"));
        Macro { name, parameters, body, varargs, kwargs, caller }
    }

    fn parameters(&mut self) -> Result<Vec<(Text, Option<Expr>)>> {
        self.expect_operator("(")?;
        let mut parameters: Vec<(Text, Option<Expr>)> = vec![];
        while !self.is_operator(")") {
            if !parameters.is_empty() {
                self.expect_operator(",")?;
            }
            let name = self.expect_name()?;
            let default = match self.skip_operator("=") {
                true => Some(self.expression(true)?),
                false => None,
            };
            if default.is_none() && parameters.last().is_some_and(|(_, default)| default.is_some())
            {
                return fail("non-default argument follows default argument");
            }
            parameters.push((name, default));
        }
        self.expect_operator(")")?;
        Ok(parameters)
    }

    /// Parses what a value is assigned to.
    fn target(&mut self, ends: &[&str], with_namespace: bool) -> Result<Target> {
        let mut targets = vec![];
        let mut is_tuple = false;
        loop {
            let is_end = self.is_operator(")")
                || matches!(self.current(), Token::BlockEnd | Token::VariableEnd);
            if is_end || ends.iter().any(|end| self.is_name(end)) {
                break;
            }
            targets.push(self.single_target(with_namespace)?);
            if !self.skip_operator(",") {
                break;
            }
            is_tuple = true;
        }
        match targets.pop() {
            Some(target) if !is_tuple => Ok(target),
            Some(last) => {
                targets.push(last);
                Ok(Target::Tuple(targets))
            }
            None => fail(format!("Expected an expression, got {}", described(self.current()))),
        }
    }

    fn single_target(&mut self, with_namespace: bool) -> Result<Target> {
        if self.skip_operator("(") {
            let target = self.nested(|parser| parser.target(&[], with_namespace))?;
            self.expect_operator(")")?;
            return Ok(target);
        }
        let name = self
            .expect_name()
            .map_err(|_| Error::new(format!("cannot assign to {}", described(self.current()))))?;
        if matches!(&*name, "true" | "false" | "none" | "True" | "False" | "None") {
            return fail("can't assign to 'const'");
        }
        if with_namespace && self.skip_operator(".") {
            return Ok(Target::Attribute(name, self.expect_name()?));
        }
        Ok(Target::Name(name))
    }

    /// Parses any number of filters behind `|`.
    fn filters(&mut self) -> Result<Vec<FilterCall>> {
        let mut filters = vec![];
        while self.skip_operator("|") {
            filters.push(self.filter_call()?);
        }
        Ok(filters)
    }

    fn filter_call(&mut self) -> Result<FilterCall> {
        let name = self.dotted_name()?;
        let arguments =
            if self.is_operator("(") { self.call_arguments()? } else { Call::default() };
        Ok(FilterCall { name, arguments })
    }

    fn dotted_name(&mut self) -> Result<Text> {
        let mut name = self.expect_name()?.to_string();
        while self.skip_operator(".") {
            name = format!("{name}.{}", self.expect_name()?);
        }
        Ok(name.into())
    }
}

/// Returns how a token is named in messages.
fn described(token: &Token) -> String {
    match token {
        Token::Data(_) => "template data".to_owned(),
        Token::VariableBegin => "begin of print statement".to_owned(),
        Token::VariableEnd => "end of print statement".to_owned(),
        Token::BlockBegin => "begin of statement block".to_owned(),
        Token::BlockEnd => "end of statement block".to_owned(),
        Token::End => "end of template".to_owned(),
        Token::Name(name) => format!("'{name}'"),
        Token::Str(_) => "a string".to_owned(),
        Token::Int(number) => format!("'{number}'"),
        Token::Float(number) => format!("'{number}'"),
        Token::Operator(sign) => format!("'{sign}'"),
    }
}
