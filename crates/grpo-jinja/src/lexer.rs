//! Splits a template into tokens, with Jinja's rules for whitespace around tags.

use crate::python_text::is_space;
use crate::value::{Error, Result, fail};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Data(String),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    Str(String),
    Int(i128),
    Float(f64),
    Operator(&'static str),
    End,
}

/// Operators, longest first.
const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";",
];

/// Returns the tokens with their lines. Line breaks are normalised, and one at the end is removed.
pub(crate) fn tokens(source: &str) -> Result<Vec<(u32, Token)>> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { rest: source, line: 1, line_starting: true, tokens: vec![] };
    lexer.root().map_err(|error| error.at(lexer.line))?;
    let line = lexer.line;
    lexer.tokens.push((line, Token::End));
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    /// Whether the text that was read last ends with a line break.
    line_starting: bool,
    tokens: Vec<(u32, Token)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Tag {
    Raw,
    Block,
    Comment,
    Variable,
}

impl<'a> Lexer<'a> {
    fn root(&mut self) -> Result<()> {
        while !self.rest.is_empty() {
            let Some((position, tag)) = next_tag(self.rest) else {
                let rest = self.rest;
                self.data(rest);
                self.advance(rest.len());
                return Ok(());
            };
            let text = &self.rest[..position];
            let sign = self.rest[position + 2..].chars().next().filter(|c| matches!(c, '-' | '+'));
            self.data_before(text, sign, tag != Tag::Variable);
            self.advance(position);
            match tag {
                Tag::Raw => self.raw()?,
                Tag::Comment => {
                    let start = 2 + sign.map_or(0, char::len_utf8);
                    let Some(end) = self.rest[start..].find("#}") else {
                        return fail("Missing end of comment tag");
                    };
                    // The sign in `#-#}` belongs to the end as well.
                    let before = self.rest[start..start + end].chars().next_back();
                    self.advance(start + end + 2);
                    self.after_tag(before.filter(|c| matches!(c, '-' | '+')));
                }
                Tag::Block => self.tag(Token::BlockBegin, Token::BlockEnd, sign)?,
                Tag::Variable => self.tag(Token::VariableBegin, Token::VariableEnd, sign)?,
            }
        }
        Ok(())
    }

    /// Moves on by `length` bytes.
    fn advance(&mut self, length: usize) {
        let (read, rest) = self.rest.split_at(length);
        self.line += read.bytes().filter(|byte| *byte == b'\n').count() as u32;
        if !read.is_empty() {
            self.line_starting = read.ends_with('\n');
        }
        self.rest = rest;
    }

    fn data(&mut self, text: &str) {
        if !text.is_empty() {
            self.tokens.push((self.line, Token::Data(text.to_owned())));
        }
    }

    /// Adds the text in front of a tag without the whitespace that its sign or `lstrip_blocks` removes.
    fn data_before(&mut self, text: &str, sign: Option<char>, is_block: bool) {
        let kept = match sign {
            Some('-') => text.trim_end_matches(is_space),
            None if is_block => {
                let start = text.rfind('\n').map_or(0, |at| at + 1);
                let at_line_start = start > 0 || self.line_starting;
                let blank = text[start..].chars().all(is_space);
                if at_line_start && blank { &text[..start] } else { text }
            }
            _ => text,
        };
        self.data(kept);
    }

    /// Skips what the end of a block or comment removes after it.
    fn after_tag(&mut self, sign: Option<char>) {
        let skipped = match sign {
            Some('-') => self.rest.len() - self.rest.trim_start_matches(is_space).len(),
            Some(_) => 0,
            None => usize::from(self.rest.starts_with('\n')),
        };
        // The end includes the line break: the next text starts a line.
        self.advance(skipped);
    }

    /// Reads `{% raw %}…{% endraw %}`.
    fn raw(&mut self) -> Result<()> {
        let (length, sign) = raw_tag(self.rest, "raw").unwrap_or_default();
        self.advance(length);
        if sign == Some('-') {
            self.after_tag(sign);
        }
        let mut search = 0;
        while let Some(found) = self.rest[search..].find("{%") {
            let start = search + found;
            if let Some((length, end_sign)) = raw_tag(&self.rest[start..], "endraw") {
                let text = &self.rest[..start];
                let sign = self.rest[start + 2..].chars().next();
                self.data_before(text, sign.filter(|c| matches!(c, '-' | '+')), true);
                self.advance(start + length);
                self.after_tag(end_sign);
                return Ok(());
            }
            search = start + 2;
        }
        fail("Missing end of raw directive")
    }

    /// Reads the tokens of a block or variable, including its ends.
    fn tag(&mut self, begin: Token, end: Token, sign: Option<char>) -> Result<()> {
        self.tokens.push((self.line, begin));
        self.advance(2 + usize::from(sign.is_some()));
        let close = if end == Token::BlockEnd { "%}" } else { "}}" };
        let mut open = vec![];
        loop {
            let space = self.rest.len() - self.rest.trim_start_matches(is_space).len();
            self.advance(space);
            if self.rest.is_empty() {
                return Ok(());
            }
            if open.is_empty() {
                let sign = self.rest.chars().next().filter(|c| matches!(c, '-' | '+'));
                let sign = sign.filter(|c| *c == '-' || close == "%}");
                let signed = sign.is_some_and(|_| self.rest[1..].starts_with(close));
                if signed || self.rest.starts_with(close) {
                    self.tokens.push((self.line, end));
                    self.advance(2 + usize::from(signed));
                    match (close, signed) {
                        ("}}", false) => {}
                        _ => self.after_tag(sign.filter(|_| signed)),
                    }
                    return Ok(());
                }
            }
            self.token(&mut open)?;
        }
    }

    fn token(&mut self, open: &mut Vec<&'static str>) -> Result<()> {
        let first = self.rest.chars().next().unwrap_or_default();
        let (token, length) = if first == '\'' || first == '"' {
            string(self.rest, first)?
        } else if first.is_ascii_digit() {
            // In `x.0.1` both numbers are positions.
            let after_dot = matches!(self.tokens.last(), Some((_, Token::Operator("."))));
            number(self.rest, after_dot)?
        } else if is_word(first) {
            let length = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
            (Token::Name(self.rest[..length].to_owned()), length)
        } else {
            let Some(sign) = OPERATORS.into_iter().find(|sign| self.rest.starts_with(sign)) else {
                return fail(format!("unexpected char {first:?}"));
            };
            balance(open, sign)?;
            (Token::Operator(sign), sign.len())
        };
        self.tokens.push((self.line, token));
        self.advance(length);
        Ok(())
    }
}

fn balance(open: &mut Vec<&'static str>, sign: &'static str) -> Result<()> {
    match sign {
        "{" => open.push("}"),
        "(" => open.push(")"),
        "[" => open.push("]"),
        "}" | ")" | "]" => match open.pop() {
            None => return fail(format!("unexpected '{sign}'")),
            Some(expected) if expected != sign => {
                return fail(format!("unexpected '{sign}', expected '{expected}'"));
            }
            Some(_) => {}
        },
        _ => {}
    }
    Ok(())
}

/// Returns the position and kind of the first tag.
fn next_tag(text: &str) -> Option<(usize, Tag)> {
    let mut search = 0;
    while let Some(found) = text[search..].find('{') {
        let start = search + found;
        match text.as_bytes().get(start + 1) {
            Some(b'%') => {
                let raw = raw_tag(&text[start..], "raw").is_some_and(|(_, sign)| sign != Some('+'));
                return Some((start, if raw { Tag::Raw } else { Tag::Block }));
            }
            Some(b'#') => return Some((start, Tag::Comment)),
            Some(b'{') => return Some((start, Tag::Variable)),
            _ => search = start + 1,
        }
    }
    None
}

/// Returns the length of the tag `{% word %}` at the start of `text`, and the sign at its end.
fn raw_tag(text: &str, word: &str) -> Option<(usize, Option<char>)> {
    let rest = text.strip_prefix("{%")?;
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    let rest = rest.trim_start_matches(is_space).strip_prefix(word)?;
    let rest = rest.trim_start_matches(is_space);
    let sign = rest.chars().next().filter(|c| matches!(c, '-' | '+'));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix("%}")?;
    Some((text.len() - rest.len(), sign))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Reads a string literal with Python's escapes.
fn string(text: &str, quote: char) -> Result<(Token, usize)> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Ok((Token::Str(out), at + 1)),
            '\\' => {
                let Some((_, escaped)) = chars.next() else { break };
                let digits = |chars: &mut std::iter::Skip<std::str::CharIndices<'_>>, n: usize| {
                    let digits: String = chars.by_ref().take(n).map(|(_, c)| c).collect();
                    let code = u32::from_str_radix(&digits, 16).ok();
                    let valid = code.filter(|_| digits.len() == n).and_then(char::from_u32);
                    valid.ok_or_else(|| Error::new(format!("invalid escape \\{escaped}{digits}")))
                };
                match escaped {
                    '\n' => {}
                    'n' => out.push('\n'),
                    't' => out.push('\t'),
                    'r' => out.push('\r'),
                    'a' => out.push('\x07'),
                    'b' => out.push('\x08'),
                    'f' => out.push('\x0c'),
                    'v' => out.push('\x0b'),
                    '\\' | '\'' | '"' => out.push(escaped),
                    'x' => out.push(digits(&mut chars, 2)?),
                    'u' => out.push(digits(&mut chars, 4)?),
                    'U' => out.push(digits(&mut chars, 8)?),
                    'N' => return fail("names of characters (\\N{…}) are not supported"),
                    '0'..='7' => {
                        let mut code = escaped.to_digit(8).unwrap_or_default();
                        for _ in 0..2 {
                            let mut ahead = chars.clone();
                            let next = ahead.next().and_then(|(_, c)| c.to_digit(8));
                            let Some(digit) = next else { break };
                            code = code * 8 + digit;
                            chars = ahead;
                        }
                        out.push(char::from_u32(code).unwrap_or_default());
                    }
                    // Python keeps the backslash of an unknown escape. The character itself has
                    // been escaped before, if it is not ASCII, and keeps its value.
                    _ => out.extend(['\\', escaped]),
                }
            }
            _ => out.push(c),
        }
    }
    fail(format!("unexpected char {quote:?}"))
}

/// Reads an integer or float literal.
fn number(text: &str, is_position: bool) -> Result<(Token, usize)> {
    let too_large = || Error::new("the integer has more than 127 bits");
    let digits = |text: &str, radix: u32| -> usize {
        // Underscores separate digits.
        let mut length = 0;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                _ if c.is_digit(radix) => length += 1,
                '_' if chars.peek().is_some_and(|c| c.is_digit(radix)) => length += 1,
                _ => break,
            }
        }
        length
    };
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if text.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(prefix)) {
            let length = digits(&text[2..], radix);
            if length > 0 {
                let plain = text[2..2 + length].replace('_', "");
                let value = i128::from_str_radix(&plain, radix).map_err(|_| too_large())?;
                return Ok((Token::Int(value), 2 + length));
            }
        }
    }
    let whole = digits(text, 10);
    let mut length = whole;
    let after = if is_position { "" } else { &text[whole..] };
    if let Some(fraction) = after.strip_prefix('.') {
        let fraction = digits(fraction, 10);
        if fraction > 0 {
            length += 1 + fraction;
        }
    }
    let after = if is_position { "" } else { &text[length..] };
    if let Some(exponent) = after.strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        let exponent = digits(&exponent[sign..], 10);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    let plain = text[..length].replace('_', "");
    if length > whole {
        let value = plain.parse().map_err(|_| Error::new("the number is not valid"))?;
        return Ok((Token::Float(value), length));
    }
    // `012` is two tokens for Jinja, which is never valid.
    if plain.len() > 1 && plain.starts_with('0') && plain.bytes().any(|digit| digit != b'0') {
        return fail("integers do not start with 0");
    }
    Ok((Token::Int(plain.parse().map_err(|_| too_large())?), length))
}
