use crate::{listing, names};
use grpo_run::{Existing, RunError, atomic_write, write_folder_atomically};
use std::fs;
use std::io;
use std::path::Path;
use tempfile::tempdir;

/// An error type as a caller might define it.
#[derive(Debug, thiserror::Error)]
enum CallerError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("out of ideas")]
    Other,
}

fn write_a(folder: &Path) -> Result<(), CallerError> {
    fs::create_dir(folder.join("below"))?;
    Ok(fs::write(folder.join("below/a"), "new")?)
}

#[test]
fn a_file_is_written_and_overwritten() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a");
    atomic_write(&path, b"one").unwrap();
    atomic_write(&path, b"2").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "2");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn a_file_that_cannot_be_written_leaves_nothing() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a");
    fs::create_dir(&path).unwrap();
    let error = atomic_write(&path, b"one").unwrap_err().to_string();
    assert!(error.starts_with(&format!("`{}` is a folder, not a file", path.display())), "{error}");
    assert_eq!(names(folder.path()), ["a/"]);
    assert!(atomic_write(&folder.path().join("none/a"), b"").is_err());
    let error = atomic_write(Path::new("/"), b"").unwrap_err().to_string();
    assert_eq!(error, "`/` does not end in a file or folder name; use a path that does");
}

#[test]
fn a_folder_appears_with_its_parents() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("parent/target");
    write_folder_atomically(&target, Existing::Refuse, |temporary| {
        assert_eq!(temporary.parent(), target.parent());
        assert!(!target.exists());
        write_a(temporary)
    })
    .unwrap();
    assert_eq!(
        names(folder.path()),
        ["parent/", "parent/target/", "parent/target/below/", "parent/target/below/a"]
    );
}

#[test]
fn a_folder_that_exists_is_refused_before_any_work() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("target");
    fs::create_dir(&target).unwrap();
    let refused = write_folder_atomically(&target, Existing::Refuse, |_| -> Result<(), RunError> {
        panic!("the work was begun")
    });
    assert_eq!(
        refused.unwrap_err().to_string(),
        format!("`{}` already exists; use another path, or remove it first", target.display())
    );
}

#[test]
fn a_folder_that_appears_in_the_meantime_is_left() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("target");
    let refused = write_folder_atomically(&target, Existing::Refuse, |temporary| {
        fs::create_dir(&target)?;
        write_a(temporary)
    });
    assert!(matches!(refused, Err(CallerError::Run(RunError::Exists { .. }))));
    assert_eq!(names(folder.path()), ["target/"]);
}

#[test]
fn a_folder_is_replaced_whole() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("old"), "old").unwrap();
    write_folder_atomically(&target, Existing::Replace, write_a).unwrap();
    assert_eq!(names(folder.path()), ["target/", "target/below/", "target/below/a"]);
}

#[test]
fn a_failure_leaves_the_old_folder_and_nothing_else() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("target");
    let fail = |temporary: &Path| {
        write_a(temporary)?;
        Err(CallerError::Other)
    };
    for existing in [Existing::Refuse, Existing::Replace] {
        let error = write_folder_atomically(&target, existing, fail).unwrap_err();
        assert_eq!(error.to_string(), "out of ideas");
        assert!(names(folder.path()).is_empty());
    }
    fs::create_dir(&target).unwrap();
    fs::write(target.join("old"), "old").unwrap();
    let before = listing(folder.path());
    write_folder_atomically(&target, Existing::Replace, fail).unwrap_err();
    assert_eq!(listing(folder.path()), before);
    let panicked = std::panic::catch_unwind(|| {
        write_folder_atomically(&target, Existing::Replace, |temporary| {
            write_a(temporary)?;
            if temporary.exists() {
                panic!("in the middle");
            }
            Ok::<(), CallerError>(())
        })
    });
    assert!(panicked.is_err());
    assert_eq!(listing(folder.path()), before);
}

#[test]
fn a_file_in_the_place_of_a_folder_is_left() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("target");
    fs::write(&target, "a file").unwrap();
    let error = write_folder_atomically(&target, Existing::Replace, write_a).unwrap_err();
    assert!(error.to_string().contains("is a file, not a folder"), "{error}");
    assert_eq!(listing(folder.path())["target"], "a file");
    assert_eq!(names(folder.path()), ["target"]);
}

#[test]
fn leftovers_of_killed_processes_are_removed_and_nothing_else() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at(".target.tmp-0/below")).unwrap();
    fs::write(at(".target.tmp-1"), "a file of this name").unwrap();
    fs::create_dir(at(".other.tmp-0")).unwrap();
    // Temporary folders in use are locked.
    write_folder_atomically(&at("target"), Existing::Refuse, |one| {
        fs::write(one.join("a"), "one")?;
        assert_eq!(one, at(".target.tmp-0"));
        let refused = write_folder_atomically(&at("target"), Existing::Refuse, |other| {
            assert_eq!(other, at(".target.tmp-2"));
            assert_eq!(fs::read_to_string(one.join("a"))?, "one");
            Err(CallerError::Other)
        });
        assert!(matches!(refused, Err(CallerError::Other)));
        Ok::<(), CallerError>(())
    })
    .unwrap();
    fs::write(at("target/.x.tmp-0"), "left").unwrap();
    atomic_write(&at("target/x"), b"x").unwrap();
    assert_eq!(
        names(folder.path()),
        [".other.tmp-0/", ".target.tmp-1", "target/", "target/a", "target/x"]
    );
}

#[cfg(unix)]
#[test]
fn nothing_is_written_over_or_removed_through_links() {
    let (folder, elsewhere) = (tempdir().unwrap(), tempdir().unwrap());
    let at = |name: &str| folder.path().join(name);
    fs::write(elsewhere.path().join("precious"), "precious").unwrap();
    let link = |name: &str| std::os::unix::fs::symlink(elsewhere.path(), at(name)).unwrap();
    [".target.tmp-0", ".x.tmp-0", "linked"].into_iter().for_each(link);
    write_folder_atomically(&at("target"), Existing::Refuse, write_a).unwrap();
    atomic_write(&at("x"), b"x").unwrap();
    let error = atomic_write(&at("linked"), b"x").unwrap_err().to_string();
    assert!(error.contains("linked` is a symbolic link"), "{error}");
    let error = write_folder_atomically(&at("linked"), Existing::Replace, write_a).unwrap_err();
    assert!(error.to_string().contains("linked` is a symbolic link"), "{error}");
    assert_eq!(listing(elsewhere.path())["precious"], "precious");
    assert_eq!(names(elsewhere.path()), ["precious"]);
}
