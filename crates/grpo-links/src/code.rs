//! Where code is in a page: fenced blocks and spans in backticks.

use std::ops::Range;

/// Returns for each byte of a page whether it is part of code.
pub(crate) fn bytes(page: &str) -> Vec<bool> {
    let mut is_code = vec![false; page.len()];
    let mut fence: Option<&str> = None;
    let mut block = 0..0;
    for line in lines(page) {
        let text = page[line.clone()].trim();
        let own_fence = fence_of(text);
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
            (None, own) => own,
            (Some(open), Some(own)) if own.starts_with(open) && own == text => None,
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
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.is_empty()
        || line.starts_with(['|', '#', '>'])
        || ["- ", "* ", "+ "].iter().any(|sign| line.starts_with(sign))
        || (numbered.len() < line.len() && numbered.starts_with(". "))
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
