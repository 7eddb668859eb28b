//! Rule: the modules of a crate have no cyclic dependencies.
//!
//! A file depends on another file if it contains a path to an item defined there. Both `use`
//! declarations and paths in code count, and re-exports are followed to the defining file. A module
//! that merely re-exports its children doesn't depend on them. Tests are exempt.

use std::collections::BTreeMap;

use crate::tidy::tokens::{Token, find, stands_at};
use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn do_not_exist(tree: &Tree) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for file in tree.files_with("rs").filter(|file| !file.is_test()) {
        if let Some((folder, inside)) = file.path.split_once("/src/") {
            let modules = crates.entry(folder).or_default();
            modules.read(file, &without_tests(&file.tokens), module_path(inside));
        }
    }
    crates.values().filter_map(|modules| circle(tree, modules.needs())).collect()
}

/// Files that a file depends on, each with a path to it and the line of this path.
type Needs<'a> = BTreeMap<&'a str, (String, usize)>;

/// Returns a cycle, if there is one. Others are found once it is fixed.
fn circle(tree: &Tree, mut needs: BTreeMap<&str, Needs>) -> Option<Violation> {
    // Files that depend on no file that is left cannot be in a cycle.
    loop {
        let is_free = |of: &Needs| !of.keys().any(|file| needs.contains_key(file));
        let free = needs.iter().find(|(_, of)| is_free(of)).map(|(file, _)| *file);
        let Some(file) = free else { break };
        needs.remove(file);
    }
    // All others depend on one that is left, so that following them leads to a file a second time.
    let mut files = vec![*needs.first_key_value()?.0];
    loop {
        let of = &needs[files.last()?];
        let next = *of.keys().find(|file| needs.contains_key(*file))?;
        if let Some(start) = files.iter().position(|file| *file == next) {
            files.drain(..start);
            break;
        }
        files.push(next);
    }
    let (name, line) = &needs[files[0]][files.get(1).unwrap_or(&files[0])];
    let what = format!(
        "`{name}` closes a module cycle, {} → {}: move the shared code into its own module",
        files.join(" → "),
        files[0]
    );
    Some(tree.file(files[0])?.violation(*line, what))
}

type Path = Vec<String>;

/// The modules of a crate by path, including inline modules.
#[derive(Default)]
struct Modules<'a>(BTreeMap<Path, Module<'a>>);

struct Module<'a> {
    file: &'a str,
    paths: Vec<Used>,
}

/// A path that occurs in a module.
struct Used {
    path: Path,
    line: usize,
    /// Name introduced by a `use` declaration, or `None` for a path in code.
    import: Option<String>,
    is_public: bool,
}

/// The module that a path leads to.
struct Target {
    module: Path,
    /// Whether the path names the module itself instead of an item that it defines.
    is_module: bool,
}

impl<'a> Modules<'a> {
    fn needs(&self) -> BTreeMap<&'a str, Needs<'a>> {
        let mut needs: BTreeMap<&str, Needs> = BTreeMap::new();
        for (path, module) in &self.0 {
            let of_file = needs.entry(module.file).or_default();
            for used in &module.paths {
                // Importing a module doesn't count as a dependency; using names from it does. The
                // path in `pub(in a::b)` doesn't count either.
                let target = self.target(path, &used.path, 0).filter(|target| !target.is_module);
                let Some(Target { module: target, .. }) = target else { continue };
                let is_facade = used.is_public && target.starts_with(path);
                let file = self.0[&target].file;
                if file != module.file && !is_facade {
                    of_file.entry(file).or_insert_with(|| (used.path.join("::"), used.line));
                }
            }
        }
        needs
    }

    /// Returns where a path in `module` leads. Returns `None` for other crates.
    fn target(&self, module: &[String], written: &[String], depth: usize) -> Option<Target> {
        let (first, others) = written.split_first()?;
        let mut base = module.to_vec();
        let mut rest = others;
        match first.as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" => drop(base.pop()),
            name if self.0.contains_key(&[module, &[name.to_owned()]].concat()) => rest = written,
            _ => return self.imported(module, written, depth),
        }
        while let Some((next, others)) = rest.split_first() {
            let child = [&base[..], std::slice::from_ref(next)].concat();
            match next.as_str() {
                "super" => drop(base.pop()),
                "self" => {}
                _ if self.0.contains_key(&child) => base = child,
                _ if self.import(&base, next).is_some() => {
                    return self.imported(&base, rest, depth);
                }
                _ => return Some(Target { module: base, is_module: false }),
            }
            rest = others;
        }
        self.0.contains_key(&base).then_some(Target { module: base, is_module: true })
    }

    /// Returns where a path leads whose first name `module` imports.
    fn imported(&self, module: &[String], written: &[String], depth: usize) -> Option<Target> {
        let import = self.import(module, &written[0])?;
        // `use anyhow::anyhow` leads to itself.
        (depth < 16)
            .then(|| [&import.path, &written[1..]].concat())
            .and_then(|path| self.target(module, &path, depth + 1))
    }

    fn import(&self, module: &[String], name: &str) -> Option<&Used> {
        self.0.get(module)?.paths.iter().find(|used| used.import.as_deref() == Some(name))
    }

    /// Collects the paths of a module. Inline modules belong to the same file.
    fn read(&mut self, file: &'a File, tokens: &[Token], path: Path) {
        let mut module = Module { file: &file.path, paths: Vec::new() };
        let text = |i: usize| tokens.get(i).map_or("", |token| token.text.as_str());
        let mut i = 0;
        while i < tokens.len() {
            if text(i) == "mod" && text(i + 2) == "{" {
                let length = closing(&tokens[i + 2..]);
                let inner = [&path[..], &[text(i + 1).to_owned()]].concat();
                self.read(file, &tokens[i + 3..i + 2 + length], inner);
                i += 2 + length;
            } else if text(i) == "use" {
                let is_public = i > 0 && (text(i - 1) == "pub" || text(i - 1) == ")");
                let length = tokens[i..].iter().position(|token| token.text == ";");
                let end = length.map_or(tokens.len(), |length| i + length);
                read_use(&tokens[i + 1..end], &[], is_public, &mut module.paths);
                i = end;
            } else if is_word(text(i)) && !(i > 0 && matches!(text(i - 1), ":" | ".")) {
                let mut words = vec![text(i).to_owned()];
                let line = tokens[i].line;
                while stands_at(tokens, i + 1, &[":", ":"]) && is_word(text(i + 3)) {
                    words.push(text(i + 3).to_owned());
                    i += 3;
                }
                if words.len() > 1 {
                    module.paths.push(Used { path: words, line, import: None, is_public: false });
                }
            }
            i += 1;
        }
        self.0.insert(path, module);
    }
}

/// Parses `a::b::{c, d as e}`, where `before` is the preceding part of the path.
fn read_use(tokens: &[Token], before: &[String], is_public: bool, uses: &mut Vec<Used>) {
    let mut path = before.to_vec();
    let mut alias = None;
    let line = tokens.first().map_or(1, |token| token.line);
    for (i, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" => {
                let inner = &tokens[i + 1..i + closing(&tokens[i..])];
                let mut depth = 0;
                let parts = inner.split(|token| {
                    depth += i32::from(token.text == "{") - i32::from(token.text == "}");
                    depth == 0 && token.text == ","
                });
                let parts = parts.filter(|part| !part.is_empty());
                return parts.for_each(|part| read_use(part, &path, is_public, uses));
            }
            "as" => alias = tokens.get(i + 1).map(|token| token.text.clone()),
            // `use a::{self}` is equivalent to `use a`.
            "self" if !path.is_empty() => {}
            "*" => return uses.push(Used { path, line, import: None, is_public }),
            word if is_word(word) && alias.is_none() => path.push(word.to_owned()),
            _ => {}
        }
    }
    let import = alias.or_else(|| path.last().cloned());
    uses.push(Used { path, line, import, is_public });
}

/// Converts a file path to a module path, e.g. `b/c.rs` to `["b", "c"]`.
fn module_path(inside: &str) -> Path {
    let inside = inside.trim_end_matches(".rs");
    match inside.strip_suffix("/mod").unwrap_or(inside) {
        "lib" | "main" => Vec::new(),
        inside => inside.split('/').map(str::to_owned).collect(),
    }
}

/// Returns the tokens without items marked `#[cfg(test)]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let Some(start) = find(rest, &["#", "[", "cfg", "(", "test", ")", "]"]).first() {
        kept.extend_from_slice(&rest[..*start]);
        rest = &rest[*start + 7..];
        let end = rest.iter().position(|token| matches!(token.text.as_str(), "{" | ";"));
        let Some(end) = end else { return kept };
        rest = &rest[end + closing(&rest[end..]) + 1..];
    }
    kept.extend_from_slice(rest);
    kept
}

/// Returns the index of the brace that closes the first token, which is 0 if that is no brace.
fn closing(tokens: &[Token]) -> usize {
    let mut depth = 0;
    let end = tokens.iter().position(|token| {
        depth += i32::from(token.text == "{") - i32::from(token.text == "}");
        depth == 0
    });
    end.unwrap_or(tokens.len())
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::do_not_exist;
    use crate::tidy::testing::tree;

    /// Checks which path closes which cycle.
    #[track_caller]
    fn check<const N: usize>(files: [(&str, &str); N], expect: &str) {
        let files = files.map(|(name, text)| (format!("a/src/{name}"), text));
        let files = files.each_ref().map(|(path, text)| (path.as_str(), *text));
        let found = do_not_exist(&tree(files)).iter().map(ToString::to_string).collect::<String>();
        let found = found.replace("a/src/", "").replace(" closes a module cycle,", "");
        assert_eq!(found.replace(": move the shared code into its own module", ""), expect);
    }

    #[test]
    fn modules_in_order() {
        check(
            [
                ("lib.rs", "mod b;\nmod c;\npub use b::B;\npub use c::C;"),
                ("b.rs", "use crate::C;\nuse std::fmt;\npub struct B(C);"),
                ("c.rs", "mod d;\npub use d::D;\npub struct C;"),
                ("c/d.rs", "use super::C;\nuse crate::e;\npub fn f() { e::g() }"),
                (
                    "e.rs",
                    "#[cfg(test)]\nmod tests {\n    use crate::B;\n    use super::*;\n}\npub fn g() {}",
                ),
                ("e/tests.rs", "use crate::b::B;"),
            ],
            "",
        );
    }

    #[test]
    fn circles() {
        let two = [
            ("lib.rs", "mod b;\nmod c;\npub use b::B;"),
            ("b.rs", "\nuse crate::c::{self, C as Other};\npub struct B(Other);"),
            ("c.rs", "use crate::{B};\npub struct C(B);"),
        ];
        check(two, "b.rs:2: `crate::c::C` b.rs → c.rs → b.rs");
        // A parent that uses its child, which in turn uses an item of the parent.
        let parent = [
            ("lib.rs", "mod b;"),
            ("b/mod.rs", "mod c;\npub struct B;\nfn f() { c::g() }"),
            ("b/c.rs", "use super::B;\npub fn g(_: B) {}"),
        ];
        check(parent, "b/c.rs:1: `super::B` b/c.rs → b/mod.rs → b/c.rs");
        // Three files, with a path in code instead of an import. The inline module belongs to its
        // file.
        let three = [
            ("main.rs", "mod b; mod c; mod d;"),
            ("b.rs", "mod inner {\n    pub fn f() { crate::c::f() }\n}"),
            ("c.rs", "use crate::d;\npub fn f() { d::f() }"),
            ("d.rs", "pub fn f() { super::b::inner::f() }"),
        ];
        check(three, "b.rs:2: `crate::c::f` b.rs → c.rs → d.rs → b.rs");
    }
}
