//! `grpo export`, and GGUF files as models.

use std::fs;

use snapbox::str;

use crate::support::Place;
use crate::texts::{distance, entries, logprobs};

const BUNDLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/replies/model");
const RECORDS: &str = "{\"prompt\": \"The train is late again.\", \"completion\": \" Oh no, sorry!\"}\n{\"prompt_ids\": [9], \"completion_ids\": [8, 300]}\n";

#[test]
fn an_exported_model_is_read_again() {
    let place = Place::new();
    let of_folder = logprobs(&place.logprob(BUNDLED, RECORDS, &[]));
    for (kind, most) in [("f32", 1e-9), ("bf16", 0.2), ("f16", 0.02), ("q8_0", 0.2)] {
        let ended = place.succeed(&["export", BUNDLED, "--gguf", kind, "-o", kind]);
        assert_eq!(ended.stderr, format!("written      {kind}\n"));
        let file = format!("model-{kind}.gguf");
        assert_eq!(entries(&place.path(kind)), ["Modelfile", file.as_str()]);
        let of_file = logprobs(&place.logprob(&format!("{kind}/{file}"), RECORDS, &[]));
        let off = distance(&of_folder, &of_file);
        assert!(off <= most, "{kind}: {off}");
    }
    let modelfile = place.read("q8_0/Modelfile");
    assert!(modelfile.contains("FROM ./model-q8_0.gguf\n"), "{modelfile}");
    assert!(modelfile.contains("PARAMETER stop \"<|im_end|>\"\n"), "{modelfile}");
}

#[test]
fn damaged_files_and_other_models_are_refused() {
    let place = Place::new();
    place.succeed(&["export", BUNDLED, "--gguf", "q8_0", "-o", "out"]);
    let whole = fs::read(place.path("out/model-q8_0.gguf")).unwrap();
    place.write("half.gguf", &whole[..1000]);
    place.refuse(
        &["sample", "--model", "half.gguf", "--prompt", "a"],
        str!["half.gguf: [..]the file is truncated or damaged, so download it again\n"],
    );
    place.model_of_ids("m", "gpt2", 12);
    place.refuse(
        &["export", "m", "--gguf", "q8_0", "-o", "new"],
        str!["cannot export m: it has no tokenizer.json, which a GGUF file needs; add the tokenizer of the model\n"],
    );
    assert!(!place.path("new").exists());
}
