//! The Porter stemmer with NLTK's extensions.
//!
//! The algorithm is from Porter (1980), "An algorithm for suffix stripping". NLTK's `PorterStemmer`
//! in its default mode deviates in a table of irregular forms, short words in `ies` and `ied`, the
//! rule for a final `y`, and the suffixes `bli`, `alli`, `fulli` and `logi`. The crates rust-stemmers
//! and porter-stemmer have no such mode.

/// Irregular forms and their stems.
const IRREGULAR: [(&str, &str); 16] = [
    ("sky", "sky"),
    ("skies", "sky"),
    ("dying", "die"),
    ("lying", "lie"),
    ("tying", "tie"),
    ("news", "news"),
    ("innings", "inning"),
    ("inning", "inning"),
    ("outings", "outing"),
    ("outing", "outing"),
    ("cannings", "canning"),
    ("canning", "canning"),
    ("howe", "howe"),
    ("proceed", "proceed"),
    ("exceed", "exceed"),
    ("succeed", "succeed"),
];

/// Step 2: suffixes and replacements if the measure of the stem is positive.
const STEP_2: [(&str, &str); 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("fulli", "ful"),
];

/// Step 3: likewise.
const STEP_3: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

/// Step 4: suffixes that are removed if the measure of the stem is larger than 1.
const STEP_4: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou",
    "ism", "ate", "iti", "ous", "ive", "ize",
];

/// Returns the stem of a word in lower case. Words of one or two letters are returned as they are.
pub fn porter_stem(word: &str) -> String {
    if let Some((_, stem)) = IRREGULAR.iter().find(|(form, _)| *form == word) {
        return (*stem).to_owned();
    }
    if word.chars().count() <= 2 {
        return word.to_owned();
    }
    let word = step_1c(step_1b(step_1a(word.to_owned())));
    step_5(step_4(with_rules(step_2(word), &STEP_3)))
}

/// Plurals.
fn step_1a(word: String) -> String {
    if let Some(stem) = word.strip_suffix("ies") {
        let end = if word.chars().count() == 4 { "ie" } else { "i" };
        return format!("{stem}{end}");
    }
    let ends_in_one_s = word.ends_with('s') && !word.ends_with("ss");
    match word.strip_suffix("sses") {
        Some(stem) => format!("{stem}ss"),
        None if ends_in_one_s => word[..word.len() - 1].to_owned(),
        None => word,
    }
}

/// `ed` and `ing`.
fn step_1b(word: String) -> String {
    if let Some(stem) = word.strip_suffix("ied") {
        let end = if word.chars().count() == 4 { "ie" } else { "i" };
        return format!("{stem}{end}");
    }
    if let Some(stem) = word.strip_suffix("eed") {
        return if measure(stem) > 0 { format!("{stem}ee") } else { word };
    }
    let stem = ["ed", "ing"].iter().find_map(|suffix| word.strip_suffix(suffix));
    let Some(stem) = stem.filter(|stem| consonants(stem).contains(&false)) else {
        return word;
    };
    if ["at", "bl", "iz"].iter().any(|end| stem.ends_with(end)) {
        return format!("{stem}e");
    }
    if ends_in_double_consonant(stem) {
        let keeps = ['l', 's', 'z'].iter().any(|end| stem.ends_with(*end));
        let end = stem.chars().next_back().map_or(0, char::len_utf8);
        return stem[..stem.len() - if keeps { 0 } else { end }].to_owned();
    }
    match measure(stem) == 1 && ends_in_cvc(stem) {
        true => format!("{stem}e"),
        false => stem.to_owned(),
    }
}

/// A final `y` after a consonant.
fn step_1c(word: String) -> String {
    match word.strip_suffix('y') {
        Some(stem) if stem.chars().count() > 1 && consonants(stem).last() == Some(&true) => {
            format!("{stem}i")
        }
        _ => word,
    }
}

/// Double suffixes.
fn step_2(word: String) -> String {
    if let Some(stem) = word.strip_suffix("alli").filter(|stem| measure(stem) > 0) {
        return step_2(format!("{stem}al"));
    }
    // The `l` counts as a part of the stem, so that short stems such as `geo` have the rule too. No
    // other suffix ends in `logi`.
    if let Some(stem) = word.strip_suffix("ogi").filter(|stem| stem.ends_with('l')) {
        return if measure(stem) > 0 { format!("{stem}og") } else { word };
    }
    with_rules(word, &STEP_2)
}

/// Applies the first rule whose suffix fits, if the measure of the stem is positive.
fn with_rules(word: String, rules: &[(&str, &str)]) -> String {
    let rule = rules.iter().find_map(|(suffix, new)| Some((word.strip_suffix(suffix)?, new)));
    match rule {
        Some((stem, new)) if measure(stem) > 0 => format!("{stem}{new}"),
        _ => word,
    }
}

/// Single suffixes.
fn step_4(word: String) -> String {
    let rule = STEP_4.iter().find_map(|suffix| Some((word.strip_suffix(suffix)?, *suffix)));
    match rule {
        Some((stem, suffix))
            if measure(stem) > 1 && (suffix != "ion" || stem.ends_with(['s', 't'])) =>
        {
            stem.to_owned()
        }
        _ => word,
    }
}

/// A final `e`, then `ll`.
fn step_5(mut word: String) -> String {
    if let Some(stem) = word.strip_suffix('e') {
        let measure = measure(stem);
        if measure > 1 || (measure == 1 && !ends_in_cvc(stem)) {
            word = stem.to_owned();
        }
    }
    if word.ends_with("ll") && measure(&word[..word.len() - 1]) > 1 {
        word.pop();
    }
    word
}

/// Returns for each letter whether it is a consonant. A `y` is one unless it follows a consonant.
fn consonants(word: &str) -> Vec<bool> {
    let mut found = Vec::with_capacity(word.len());
    for letter in word.chars() {
        found.push(match letter {
            'a' | 'e' | 'i' | 'o' | 'u' => false,
            'y' => found.last() != Some(&true),
            _ => true,
        });
    }
    found
}

/// Returns Porter's measure, the number of changes from a vowel to a consonant.
fn measure(stem: &str) -> usize {
    consonants(stem).windows(2).filter(|pair| !pair[0] && pair[1]).count()
}

fn ends_in_double_consonant(stem: &str) -> bool {
    let mut letters = stem.chars().rev();
    letters.next() == letters.next() && consonants(stem).last() == Some(&true)
}

/// Returns whether a stem ends in consonant, vowel, consonant, the last of which is not `w`, `x` or
/// `y`. NLTK includes stems of a vowel and a consonant.
fn ends_in_cvc(stem: &str) -> bool {
    match consonants(stem)[..] {
        [false, true] => true,
        [.., true, false, true] => !stem.ends_with(['w', 'x', 'y']),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of the paper, and those of NLTK's extensions.
    #[test]
    fn stems_by_hand() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("ties", "tie"),
            ("cats", "cat"),
            ("feed", "feed"),
            ("agreed", "agre"),
            ("motoring", "motor"),
            ("sing", "sing"),
            ("hopping", "hop"),
            ("falling", "fall"),
            ("filing", "file"),
            ("happy", "happi"),
            ("enjoy", "enjoy"),
            ("spy", "spi"),
            ("died", "die"),
            ("spied", "spi"),
            ("conditional", "condit"),
            ("geology", "geolog"),
            ("theology", "theolog"),
            ("gracefully", "grace"),
            ("formalize", "formal"),
            ("adoption", "adopt"),
            ("controlling", "control"),
            ("rate", "rate"),
            ("skies", "sky"),
            ("succeed", "succeed"),
            ("yyyy", "yyyi"),
            ("as", "as"),
            ("über", "über"),
        ] {
            assert_eq!(porter_stem(word), expected, "{word}");
        }
    }
}
