use grpo_run::{MODEL_CARD, sha256_of_file, verify, write_manifest};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

/// Creates a folder with two files and a manifest.
fn folder() -> TempDir {
    let folder = tempdir().unwrap();
    fs::create_dir(folder.path().join("below")).unwrap();
    fs::write(folder.path().join("below/a.bin"), b"abc").unwrap();
    fs::write(folder.path().join("b.json"), b"").unwrap();
    write_manifest(folder.path()).unwrap();
    folder
}

/// Checks the error message after `change`, without the path of the folder.
fn check(change: impl FnOnce(&Path), expect: &str) {
    let folder = folder();
    assert_eq!(verify(folder.path()).unwrap().path(), folder.path());
    change(folder.path());
    let error = verify(folder.path()).unwrap_err().to_string();
    let error = error.replace(&format!("{}/", folder.path().display()), "");
    assert_eq!(error.replace(&folder.path().display().to_string(), "."), expect);
}

#[test]
fn the_manifest_lists_size_and_hash_of_each_file() {
    let folder = folder();
    let expect = r#"{
  "version": 1,
  "files": {
    "b.json": {
      "bytes": 0,
      "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    },
    "below/a.bin": {
      "bytes": 3,
      "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    }
  }
}
"#;
    let manifest = folder.path().join("manifest.json");
    assert_eq!(fs::read_to_string(&manifest).unwrap(), expect);
    write_manifest(folder.path()).unwrap();
    assert_eq!(fs::read_to_string(&manifest).unwrap(), expect);
}

#[test]
fn a_large_file_is_hashed_in_pieces() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, vec![b'a'; 1_000_000]).unwrap();
    // The third SHA-256 example published by NIST.
    assert_eq!(
        sha256_of_file(&path).unwrap(),
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
    );
}

#[test]
fn reports_altered_files() {
    check(
        |folder| fs::write(folder.join("below/a.bin"), b"abd").unwrap(),
        "`below/a.bin` is damaged: its SHA-256 is a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9, but the manifest has ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad; use another checkpoint",
    );
    check(
        |folder| fs::write(folder.join("below/a.bin"), b"ab").unwrap(),
        "`below/a.bin` is damaged: it has 2 bytes, but the manifest has 3; use another checkpoint",
    );
    check(
        |folder| fs::remove_file(folder.join("b.json")).unwrap(),
        "`b.json` is listed in the manifest but missing; use another checkpoint",
    );
    check(
        |folder| fs::write(folder.join("below/c"), b"").unwrap(),
        "`below/c` is not listed in the manifest; remove it, or use another checkpoint",
    );
    check(
        |folder| fs::remove_file(folder.join("manifest.json")).unwrap(),
        "`.` has no `manifest.json`, so it is not a complete checkpoint; use another one",
    );
    check(
        |folder| fs::write(folder.join("manifest.json"), b"{\"version\": 1").unwrap(),
        "`manifest.json` is damaged: unexpected end of input at line 1 column 13; restore it from a copy, or start the run again",
    );
    let error = verify(Path::new("none")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read `none`: "), "{error}");
}

/// Users add a template to models that have none, and edit cards.
#[test]
fn a_chat_template_and_a_card_may_be_added() {
    let folder = folder();
    for text in ["# Model", "# Mine"] {
        fs::write(folder.path().join(MODEL_CARD), text).unwrap();
        verify(folder.path()).unwrap();
    }
    fs::write(folder.path().join("chat_template.jinja"), "{{ messages }}").unwrap();
    verify(folder.path()).unwrap();
    // One that is listed is checked like any other file, and none belongs into a subfolder.
    write_manifest(folder.path()).unwrap();
    fs::write(folder.path().join("chat_template.jinja"), "{{ other }}").unwrap();
    assert!(verify(folder.path()).is_err());
    check(
        |folder| fs::write(folder.join("below/chat_template.jinja"), b"").unwrap(),
        "`below/chat_template.jinja` is not listed in the manifest; remove it, or use another checkpoint",
    );
}

#[cfg(unix)]
#[test]
fn links_are_refused() {
    let folder = folder();
    std::os::unix::fs::symlink("b.json", folder.path().join("link")).unwrap();
    let expected = format!(
        "`{}` is neither a file nor a folder; replace it with a regular file",
        folder.path().join("link").display()
    );
    assert_eq!(verify(folder.path()).unwrap_err().to_string(), expected);
    assert_eq!(write_manifest(folder.path()).unwrap_err().to_string(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn one_flipped_bit_or_one_missing_byte_is_refused(
        which in 0usize..3, at: prop::sample::Index, bit in 0u8..8, cut: bool
    ) {
        let folder = folder();
        fs::write(folder.path().join("b.json"), "[1, 2, 3]").unwrap();
        write_manifest(folder.path()).unwrap();
        let path: PathBuf = folder.path().join(["below/a.bin", "b.json", "manifest.json"][which]);
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        // Whitespace in the manifest is not significant.
        prop_assume!(which < 2 || !bytes[at].is_ascii_whitespace() && !cut);
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << bit;
        }
        fs::write(&path, bytes).unwrap();
        prop_assert!(verify(folder.path()).is_err());
    }
}
