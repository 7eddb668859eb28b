use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;

/// Makes one object of each kind that is not a regular file, and returns what a message says of it.
fn put(kind: &str, place: &Path, elsewhere: &Path) -> &'static str {
    match kind {
        "link to a file" => symlink(elsewhere.join("file"), place).unwrap(),
        "link to a folder" => symlink(elsewhere, place).unwrap(),
        "dangling link" => symlink(elsewhere.join("none"), place).unwrap(),
        "link to a device" => symlink("/dev/null", place).unwrap(),
        "pipe" => nix::unistd::mkfifo(place, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        "socket" => drop(UnixListener::bind(place).unwrap()),
        "folder" => fs::create_dir(place).unwrap(),
        _ => unreachable!("{kind}"),
    }
    match kind {
        "pipe" | "socket" => "is a named pipe, device or socket, not a file",
        "folder" => "is a folder, not a file",
        _ => "is a symbolic link, and links inside of run and output folders are not followed",
    }
}

const KINDS: [&str; 7] = [
    "link to a file",
    "link to a folder",
    "dangling link",
    "link to a device",
    "pipe",
    "socket",
    "folder",
];

#[test]
fn nothing_but_regular_files_is_opened_and_nothing_is_written_through_links() {
    for kind in KINDS {
        let (own, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("file"), "precious").unwrap();
        let said = put(kind, &own.path().join("name"), elsewhere.path());
        let folder = OwnFolder::open(own.path()).unwrap();
        let check = |error: io::Error| {
            let error = error.to_string();
            assert!(error.contains("/name` ") && error.contains(said), "{kind}: {error}");
        };
        check(folder.open_file("name").unwrap_err());
        check(folder.open_to_append("name").unwrap_err());
        check(folder.lock_file("name").unwrap_err());
        let taken = folder.create_file("name").unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists, "{kind}");
        if kind != "folder" {
            // As a folder on the way to a file.
            for error in [
                folder.open_file("name/file").unwrap_err(),
                folder.open_to_append("name/new").unwrap_err(),
                folder.create_file("name/new").unwrap_err(),
                folder.create_folder("name/new").unwrap_err(),
                folder.create_folders("name/new").unwrap_err(),
                folder.remove_file("name/file").unwrap_err(),
                folder.remove_all("name/file").unwrap_err(),
                folder.rename("name/file", "other").unwrap_err(),
                folder.entries("name").unwrap_err(),
                folder.sync("name").unwrap_err(),
            ] {
                assert!(ForeignFile::of(&error).is_some(), "{kind}: {error}");
            }
        }
        // The thing itself can be renamed and removed.
        folder.rename("name", "other").unwrap();
        folder.remove_all("other").unwrap();
        assert_eq!(folder.entries("").unwrap(), []);
        let left: Vec<_> = fs::read_dir(elsewhere.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{kind}");
        assert_eq!(fs::read_to_string(elsewhere.path().join("file")).unwrap(), "precious");
    }
}

#[test]
fn a_folder_is_removed_without_what_its_links_lead_to() {
    let (own, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(elsewhere.path().join("file"), "precious").unwrap();
    fs::create_dir_all(own.path().join("a/b")).unwrap();
    for (number, kind) in KINDS.into_iter().enumerate() {
        put(kind, &own.path().join(format!("a/b/{number}")), elsewhere.path());
    }
    OwnFolder::open(own.path()).unwrap().remove_all("a").unwrap();
    assert_eq!(fs::read_dir(own.path()).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(elsewhere.path().join("file")).unwrap(), "precious");
}

#[test]
fn nothing_is_changed_in_a_folder_that_was_replaced() {
    let parent = tempfile::tempdir().unwrap();
    let at = |name: &str| parent.path().join(name);
    fs::create_dir(at("run")).unwrap();
    fs::create_dir(at("other")).unwrap();
    symlink("run", at("link")).unwrap();
    let (folder, linked) =
        (OwnFolder::open(&at("run")).unwrap(), OwnFolder::open(&at("link")).unwrap());
    let mut open = folder.open_to_append("a").unwrap();
    linked.create_file("b").unwrap();
    assert!(folder.is_file_at("a", &open).unwrap());
    fs::rename(at("run"), at("moved")).unwrap();
    symlink("other", at("run")).unwrap();
    for folder in [folder, linked] {
        for error in [
            folder.create_file("c").unwrap_err(),
            folder.open_to_append("c").map(drop).unwrap_err(),
            folder.remove_all("a").unwrap_err(),
            folder.rename("a", "c").unwrap_err(),
            folder.is_file_at("a", &open).map(drop).unwrap_err(),
        ] {
            assert!(error.to_string().contains("is no longer the folder"), "{error}");
        }
    }
    open.write_all(b"text").unwrap();
    assert_eq!(fs::read_dir(at("other")).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(at("moved/a")).unwrap(), "text");
}

#[test]
fn a_file_is_the_one_that_was_opened_until_it_is_replaced() {
    let own = tempfile::tempdir().unwrap();
    let folder = OwnFolder::open(own.path()).unwrap();
    let file = folder.open_to_append("a").unwrap();
    assert!(folder.is_file_at("a", &file).unwrap());
    fs::remove_file(own.path().join("a")).unwrap();
    assert!(!folder.is_file_at("a", &file).unwrap());
    fs::write(own.path().join("a"), "").unwrap();
    assert!(!folder.is_file_at("a", &file).unwrap());
}

#[test]
fn locks_hold_until_they_are_dropped_and_leave_content_and_times() {
    let own = tempfile::tempdir().unwrap();
    let folder = OwnFolder::open(own.path()).unwrap();
    fs::write(own.path().join(".lock"), "a note").unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    File::options()
        .append(true)
        .open(own.path().join(".lock"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    let lock = folder.lock_file(".lock").unwrap();
    assert!(matches!(lock, Locked::Held(_)));
    assert!(matches!(folder.lock_file(".lock").unwrap(), Locked::Busy));
    drop(lock);
    assert!(matches!(folder.lock_file(".lock").unwrap(), Locked::Held(_)));
    assert_eq!(fs::read_to_string(own.path().join(".lock")).unwrap(), "a note");
    assert_eq!(own.path().join(".lock").metadata().unwrap().modified().unwrap(), time);
    fs::create_dir(own.path().join("folder")).unwrap();
    let lock = folder.lock("folder", FileKind::Folder).unwrap();
    assert!(matches!(lock, Locked::Held(_)));
    assert!(matches!(folder.lock("folder", FileKind::Folder).unwrap(), Locked::Busy));
}

#[test]
fn names_do_not_leave_the_folder() {
    let own = tempfile::tempdir().unwrap();
    let folder = OwnFolder::open(own.path()).unwrap();
    for name in ["..", "../a", "/a", "a/../../b", "", "."] {
        assert!(folder.create_file(name).is_err(), "{name}");
        assert!(folder.remove_all(name).is_err(), "{name}");
    }
    assert!(folder.entries("..").is_err());
}

#[test]
fn links_that_lead_nowhere_are_named() {
    let own = tempfile::tempdir().unwrap();
    let link = own.path().join("link");
    symlink("missing", &link).unwrap();
    let said =
        format!("`{}` is a symbolic link to `missing`, which does not exist", link.display());
    assert_eq!(dangling_link(&link.join("a/b")), Some(said.clone()));
    assert_eq!(dangling_link(&link), Some(said));
    assert_eq!(dangling_link(&own.path().join("none/a")), None);
}
