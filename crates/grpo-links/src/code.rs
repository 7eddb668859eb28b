//! Where code is in a page: fenced blocks and spans in backticks.

use std::ops::Range;

/// Returns for each byte of a page whether it is part of code.
pub(crate) fn bytes(page: &str) -> Vec<bool> {
    let mut is_code = vec![false; page.len()];
    // The signs that opened a block, and in how many quotes it is.
    let mut fence: Option<(&str, usize)> = None;
    let mut block = 0..0;
    for line in lines(page) {
        let text = page[line.clone()].trim();
        let (quotes, quoted) = without_quotes(text, fence.map_or(usize::MAX, |(_, depth)| depth));
        // A block ends with the quote that it is in.
        fence = fence.filter(|(_, depth)| *depth == quotes);
        let own_fence = fence_of(if fence.is_some() { quoted } else { without_items(quoted) });
        if fence.is_some() || own_fence.is_some() || starts_block(text) {
            mark_spans(page, &block, &mut is_code);
            block = line.start..line.start;
        }
        if fence.is_some() || own_fence.is_some() {
            is_code[line.clone()].fill(true);
            block = line.end..line.end;
        } else {
            block.end = line.end;
        }
        fence = match (fence, own_fence) {
            (None, own) => own.map(|own| (own, quotes)),
            (Some((open, _)), Some(own)) if own.starts_with(open) && own == quoted => None,
            (open, _) => open,
        };
    }
    mark_spans(page, &block, &mut is_code);
    is_code
}

/// Returns the lines of a page without their ends.
pub(crate) fn lines(page: &str) -> impl Iterator<Item = Range<usize>> {
    page.split_inclusive('\n').scan(0, |start, line| {
        let begin = *start;
        *start += line.len();
        Some(begin..begin + line.trim_end_matches(['\n', '\r']).len())
    })
}

/// Removes the signs of at most `most` quotes from the start of a line. Returns their number and the
/// rest.
pub(crate) fn without_quotes(line: &str, most: usize) -> (usize, &str) {
    let (mut count, mut rest) = (0, line.trim_start());
    while let Some(quoted) = rest.strip_prefix('>').filter(|_| count < most) {
        (count, rest) = (count + 1, quoted.trim_start());
    }
    (count, rest)
}

/// Removes the signs that begin list items from the start of a line.
fn without_items(mut line: &str) -> &str {
    while let Some(item) = item_of(line) {
        line = item.trim_start();
    }
    line
}

/// Returns the text of a line that begins a list item.
fn item_of(line: &str) -> Option<&str> {
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = numbered.len() < line.len();
    let ends: &[&str] = if is_numbered { &[". ", ") "] } else { &["- ", "* ", "+ "] };
    ends.iter().find_map(|end| numbered.strip_prefix(end))
}

/// Returns the backticks or tildes that begin a line, if they are a fence.
fn fence_of(line: &str) -> Option<&str> {
    ['`', '~'].into_iter().find_map(|sign| {
        let length = line.len() - line.trim_start_matches(sign).len();
        let is_fence = length >= 3 && !(sign == '`' && line[length..].contains('`'));
        is_fence.then(|| &line[..length])
    })
}

/// Returns whether a line begins a paragraph, item, row or heading. A code span ends before it.
fn starts_block(line: &str) -> bool {
    line.is_empty() || line.starts_with(['|', '#', '>']) || item_of(line).is_some()
}

/// Marks the code spans of a block: from a run of backticks to the next run of the same length.
fn mark_spans(page: &str, block: &Range<usize>, is_code: &mut [bool]) {
    let run_at = |at: usize| page[at..block.end].bytes().take_while(|byte| *byte == b'`').count();
    let next_run = |from: usize| page[from..block.end].find('`').map(|offset| from + offset);
    let mut at = block.start;
    while let Some(open) = next_run(at) {
        let length = run_at(open);
        let mut after = open + length;
        at = after;
        while let Some(close) = next_run(after) {
            after = close + run_at(close);
            if after - close == length {
                is_code[open..after].fill(true);
                at = after;
                break;
            }
        }
    }
}
