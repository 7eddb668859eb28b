//! Python's formatting of values as text.

pub(crate) mod percent;
mod spec;
pub(crate) mod template;

use crate::python_text::check_length;
use crate::value::Result;

/// A sign, digits, padding and precision, common to both ways of formatting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) fill: Option<char>,
    /// `<`, `>`, `^` or `=`.
    pub(crate) align: Option<char>,
    /// `+`, `-` or a space.
    pub(crate) sign: Option<char>,
    pub(crate) alternate: bool,
    pub(crate) zero: bool,
    pub(crate) width: usize,
    /// `,` or `_` between groups of digits.
    pub(crate) grouping: Option<char>,
    pub(crate) precision: Option<usize>,
}

impl Layout {
    /// Pads a text that is not a number.
    pub(crate) fn text(&self, text: &str, default_align: char) -> Result<String> {
        let text: String = match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text.to_owned(),
        };
        self.padded("", &text, default_align)
    }

    /// Pads a number: the sign and prefix, and the digits behind it.
    pub(crate) fn number(&self, negative: bool, prefix: &str, digits: &str) -> Result<String> {
        let sign = match (negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            _ => "",
        };
        let start = format!("{sign}{prefix}");
        let mut digits = digits.to_owned();
        if let Some(mark) = self.grouping {
            let zeros = self.fill.unwrap_or(if self.zero { '0' } else { ' ' }) == '0'
                && self.align.unwrap_or(if self.zero { '=' } else { '>' }) == '=';
            let width = if zeros { self.width.saturating_sub(start.len()) } else { 0 };
            let size = if mark == '_' && matches!(prefix, "0x" | "0b" | "0o") { 4 } else { 3 };
            digits = grouped(&digits, mark, size, width)?;
        }
        self.padded(&start, &digits, '>')
    }

    fn padded(&self, start: &str, text: &str, default_align: char) -> Result<String> {
        let length = start.chars().count() + text.chars().count();
        let missing = self.width.saturating_sub(length);
        check_length(missing.saturating_mul(4))?;
        let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
        let align = self.align.unwrap_or(match default_align {
            '>' if self.zero => '=',
            _ => default_align,
        });
        let repeat = |count: usize| fill.to_string().repeat(count);
        Ok(match align {
            '<' => format!("{start}{text}{}", repeat(missing)),
            '^' => format!("{}{start}{text}{}", repeat(missing / 2), repeat(missing - missing / 2)),
            '=' => format!("{start}{}{text}", repeat(missing)),
            _ => format!("{}{start}{text}", repeat(missing)),
        })
    }
}

/// Separates groups of the digits in front of the point, with zeros in front up to `width`.
fn grouped(digits: &str, mark: char, size: usize, width: usize) -> Result<String> {
    check_length(width)?;
    let end = digits.find(|c: char| !c.is_ascii_hexdigit() || c == 'e').unwrap_or(digits.len());
    let (whole, rest) =
        digits.split_at(if digits.contains('.') { digits.find('.').unwrap_or(end) } else { end });
    let mut whole: Vec<char> = whole.chars().collect();
    let grouped_length = |count: usize| count + count.saturating_sub(1) / size;
    while grouped_length(whole.len()) + rest.len() < width {
        whole.insert(0, '0');
    }
    let mut out = String::new();
    for (i, c) in whole.iter().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(size) {
            out.push(mark);
        }
        out.push(*c);
    }
    Ok(out + rest)
}

/// Returns the digits of a float in one of Python's notations `e`, `f`, `g` or `%`.
pub(crate) fn float_digits(
    number: f64,
    kind: char,
    precision: usize,
    alternate: bool,
) -> Result<String> {
    check_length(precision)?;
    let number = number.abs();
    if number.is_nan() {
        return Ok("nan".to_owned());
    }
    if number.is_infinite() {
        return Ok("inf".to_owned());
    }
    let exponential = |precision: usize| {
        let text = format!("{number:.precision$e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        (digits.to_owned(), exponent.parse::<i32>().unwrap_or(0))
    };
    let with_exponent = |digits: &str, exponent: i32| {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    };
    let point =
        |digits: String| if alternate && !digits.contains('.') { digits + "." } else { digits };
    Ok(match kind {
        'e' => {
            let (digits, exponent) = exponential(precision);
            with_exponent(&point(digits), exponent)
        }
        '%' => point(format!("{:.precision$}", number * 100.0)) + "%",
        'g' => {
            let precision = precision.max(1);
            let (digits, exponent) = exponential(precision - 1);
            let trim = |text: &str| match text.contains('.') && !alternate {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text.to_owned(),
            };
            if exponent < -4 || exponent >= precision as i32 {
                with_exponent(&trim(&digits), exponent)
            } else {
                let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
                trim(&point(format!("{number:.decimals$}")))
            }
        }
        _ => point(format!("{number:.precision$}")),
    })
}
