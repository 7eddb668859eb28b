use grpo_data::{ChatOptions, Codec, CodecKind, Codecs, CompletionSource, PromptSource, TextCodec};
use grpo_infill::{BLANK, Characters};
use proptest::prelude::*;
use std::path::Path;

fn parse(json: &str) -> Result<Characters, String> {
    Characters::from_json(json, Path::new("c.json")).map_err(|error| error.to_string())
}

fn codecs() -> Codecs {
    let other = CodecKind { file: "vocabulary.json", ..Characters::CODEC };
    Codecs::new(vec![other, Characters::CODEC])
}

fn of(text: &str) -> Characters {
    Characters::from_texts([text]).unwrap()
}

#[test]
fn characters_are_sorted_and_distinct_and_mask_pad_and_cls_come_behind_them() {
    let characters = Characters::from_texts(["ba\n", "aéb", "漢"]).unwrap();
    assert_eq!(characters.characters(), ['\n', 'a', 'b', 'é', '漢']);
    assert_eq!((characters.base_len(), characters.len()), (5, 8));
    let (mask, pad, cls) = (characters.mask_id(), characters.pad_id(), characters.cls_id());
    assert_eq!([mask, pad, cls], [5, 6, 7]);
    assert_eq!(characters.specials(), [5, 6, 7]);
    assert_eq!(characters.encode("é漢\nb").unwrap(), [3, 4, 0, 2]);
    assert_eq!([characters.id('a'), characters.id('z'), characters.id('ü')], [Some(1), None, None]);
}

#[test]
fn a_blank_is_mask_and_mask_is_a_blank() {
    let characters = of("abc");
    let mask = characters.mask_id();
    assert_eq!(characters.encode_blanks("a␣c", BLANK).unwrap(), [0, mask, 2]);
    assert_eq!(characters.encode_blanks("a_c", '_').unwrap(), [0, mask, 2]);
    // A blank marker takes precedence over a character of the vocabulary.
    assert_eq!(characters.encode_blanks("abc", 'b').unwrap(), [0, mask, 2]);
    let [_, pad, cls] = characters.specials();
    assert_eq!(characters.decode(&[cls, 0, mask, 2, pad, pad]), "a␣c");
}

#[test]
fn reports_the_position_of_an_unknown_character() {
    let characters = of("abc");
    let expect = |message: &str, character: &str, position: usize, text: &str| {
        assert_eq!(
            message,
            format!(
                "{character} (character {position} of {text}) is not one of the 3 characters of the model; replace it, or train a model on text that has it"
            )
        );
    };
    let message = |text| characters.encode(text).unwrap_err().to_string();
    expect(&message("abéa"), "'é'", 3, "\"abéa\"");
    expect(&message("漢\n"), "'漢'", 1, "\"漢\\n\"");
    // The blank marker isn't a character if text is encoded without blanks.
    expect(&message("a␣"), "'␣'", 2, "\"a␣\"");
    let error = characters.encode_blanks("a␣_", BLANK).unwrap_err();
    expect(&error.to_string(), "'_'", 3, "\"a␣_\"");
}

#[test]
fn a_vocabulary_survives_its_own_json_and_its_hash_says_whether_it_is_the_same() {
    let characters = of("a\"\\\n");
    let json = characters.to_json();
    assert_eq!(
        json,
        "{\n  \"characters\": \"\\n\\\"\\\\a\",\n  \"mask\": 4,\n  \"pad\": 5,\n  \"cls\": 6\n}"
    );
    assert_eq!(parse(&json).unwrap(), characters);
    assert_eq!(parse(&json).unwrap().sha256(), characters.sha256());
    // The order of characters in the file matters, because it defines the order of the weights.
    let other = parse(r#"{"characters": "ba", "mask": 2, "pad": 3, "cls": 4}"#).unwrap();
    assert_eq!(other.encode("ab").unwrap(), [1, 0]);
    assert_ne!(other.sha256(), of("ab").sha256());
    assert_eq!(of("ab").sha256().len(), 64);
}

#[test]
fn wrong_vocabularies_are_refused_with_their_fault() {
    let check = |json: &str, expect: &str| assert_eq!(parse(json).unwrap_err(), expect);
    // A vocabulary without MASK.
    check(
        r#"{"characters": "ab"}"#,
        "`mask` in `c.json` is missing; expected 2: MASK, PAD and CLS have distinct ids after those of the 2 characters",
    );
    check(
        r#"{"characters": "ab", "mask": 2, "pad": 3}"#,
        "`cls` in `c.json` is missing; expected 4: MASK, PAD and CLS have distinct ids after those of the 2 characters",
    );
    // The ID collision from the example of the original, whose judge mistook every PAD for CLS.
    check(
        r#"{"characters": "ab", "mask": 2, "pad": 3, "cls": 3}"#,
        "`cls` in `c.json` is 3; expected 4: MASK, PAD and CLS have distinct ids after those of the 2 characters",
    );
    check(
        r#"{"characters": "ab", "mask": 1, "pad": 3, "cls": 4}"#,
        "`mask` in `c.json` is 1; expected 2: MASK, PAD and CLS have distinct ids after those of the 2 characters",
    );
    check(
        r#"{"characters": "aba", "mask": 3, "pad": 4, "cls": 5}"#,
        "`characters` in `c.json` must contain each character once and must not contain '␣', the blank mark; remove one 'a'",
    );
    check(
        r#"{"characters": "a␣", "mask": 2, "pad": 3, "cls": 4}"#,
        "`characters` in `c.json` must contain each character once and must not contain '␣', the blank mark; remove one '␣'",
    );
    check(
        r#"{"characters": "", "mask": 0, "pad": 1, "cls": 2}"#,
        "`c.json` is not a character vocabulary: `characters` is empty; copy `characters.json` from the original model again",
    );
    for text in [
        "",
        "[]",
        r#"{"mask": 1}"#,
        r#"{"characters": "a", "mask": -1}"#,
        r#"{"characters": "a", "mask": 1, "pad": 2, "cls": 3, "bos": 4}"#,
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with("`c.json` is not a character vocabulary: "), "{error}");
    }
    let no_text = Characters::from_texts(["", ""]).unwrap_err().to_string();
    assert_eq!(
        no_text,
        "the text has no characters to build a vocabulary from; provide a non-empty text"
    );
    assert_eq!(
        Characters::from_texts(["a␣"]).unwrap_err().to_string(),
        "the text contains the character '␣', which is the blank mark; replace it"
    );
}

#[test]
fn a_model_folder_keeps_its_characters() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    let characters = of("abc");
    for (name, bytes) in Codec::from_text_codec(characters.clone()).files() {
        write(name, bytes);
    }
    let codec = codecs().read(folder.path()).unwrap();
    assert_eq!(codec.own::<Characters>(), Some(&characters));
    assert_eq!(codec.sha256(), Some(characters.sha256()));
    assert_eq!((codec.token_count(), codec.file()), (Some(6), "characters.json"));
    assert!(codec.is_own() && codec.is_text());
    assert_eq!((codec.begin_id(), codec.end_ids()), (None, &[][..]));
    assert_eq!(codec.learned_end().unwrap(), None);

    let text = |text: &str| PromptSource::Text(text.to_owned());
    let options = ChatOptions::default();
    assert_eq!(codec.prompt(&text("a␣c"), &options).unwrap(), [0, 3, 2]);
    assert!(codec.prompt(&text(""), &options).is_err());
    let completion = |text: &str| codec.completion(&CompletionSource::Text(text.to_owned()));
    assert_eq!(completion("ab").unwrap(), [0, 1]);
    // Completions have no blanks.
    assert!(completion("a␣").is_err());
    assert_eq!(codec.decode(&[0, 3, 2]), "a␣c");

    write("vocabulary.json", b"{}");
    let error = codecs().read(folder.path()).unwrap_err().to_string();
    assert_eq!(
        error.replace(&folder.path().display().to_string(), "model"),
        "`model` has both vocabulary.json and characters.json; keep the one that the model was trained with"
    );
}

proptest! {
    #[test]
    fn any_text_comes_back_from_its_ids(text in "\\PC{1,40}|[a-f\n é漢🦀]{1,40}") {
        prop_assume!(!text.contains(BLANK));
        let characters = of(&text);
        let ids = characters.encode(&text).unwrap();
        prop_assert_eq!(ids.len(), text.chars().count());
        prop_assert!(ids.iter().all(|id| (*id as usize) < characters.base_len()));
        prop_assert_eq!(characters.decode(&ids), text.clone());
        let mut sorted: Vec<char> = text.chars().collect();
        sorted.sort_unstable();
        sorted.dedup();
        prop_assert_eq!(characters.characters(), sorted);
        prop_assert_eq!(parse(&characters.to_json()).unwrap(), characters);
    }

    /// Regression test for a bug in the original: PAD and CLS had the same ID, and PAD was computed
    /// from a size that already included it.
    #[test]
    fn special_ids_are_distinct_and_no_character(text in "\\PC{1,40}") {
        prop_assume!(!text.contains(BLANK));
        let characters = of(&text);
        let mut ids: Vec<u32> = characters.specials().to_vec();
        ids.extend(characters.encode(&text).unwrap());
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids, (0..characters.len() as u32).collect::<Vec<_>>());
    }
}
