//! Rule: the modules of a crate have no cyclic dependencies.
//!
//! A file depends on another file if it contains a path to an item defined there. Both `use`
//! declarations and paths in code count, and re-exports are followed to the defining file. A module
//! that merely re-exports its children doesn't depend on them. Tests are exempt.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::tidy::tokens::{Token, find, stands_at};
use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn do_not_exist(tree: &Tree) -> Vec<Violation> {
    let mut sources: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    for file in tree.files_with("rs").filter(|file| !file.is_test()) {
        if let Some((folder, _)) = file.path.split_once("/src/") {
            sources.entry(folder).or_default().push(file);
        }
    }
    sources.values().flat_map(|files| of_crate(files)).collect()
}

fn of_crate(files: &[&File]) -> Vec<Violation> {
    let needs = Modules::read(files).needs(files);
    let mut circles = Vec::new();
    let mut reported = BTreeSet::new();
    for start in 0..files.len() {
        let Some(circle) = shortest_circle(&needs, start) else { continue };
        // Report one cycle per group of files. Other cycles share a file with it, or are found once
        // it is fixed.
        if circle.iter().all(|file| reported.insert(*file)) {
            let next = circle.get(1).copied().unwrap_or(start);
            let Need { line, name } = &needs[start][&next];
            let mut words: Vec<&str> =
                circle.iter().map(|&file| files[file].path.as_str()).collect();
            words.push(&files[start].path);
            let what = format!(
                "`{name}` closes a module cycle, {}: move the shared code into its own module",
                words.join(" → ")
            );
            circles.push(files[start].violation(*line, what));
        }
    }
    circles
}

/// The reason why a file depends on another one.
struct Need {
    line: usize,
    name: String,
}

/// The dependencies of each file.
type Needs = Vec<BTreeMap<usize, Need>>;

/// Returns the files of the shortest cycle through `start`.
fn shortest_circle(needs: &Needs, start: usize) -> Option<Vec<usize>> {
    let mut before = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for &next in needs[file].keys() {
            if next == start {
                let mut circle = vec![file];
                while let Some(&previous) = before.get(&circle[circle.len() - 1]) {
                    circle.push(previous);
                }
                circle.reverse();
                return Some(circle);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = before.entry(next) {
                entry.insert(file);
                queue.push_back(next);
            }
        }
    }
    None
}

type Path = Vec<String>;

/// The modules of a crate by path, including inline modules.
struct Modules(BTreeMap<Path, Module>);

#[derive(Default)]
struct Module {
    file: usize,
    /// Names introduced by `use` declarations. The value is a path in this crate, or `None` for
    /// another crate.
    imports: BTreeMap<String, Option<Path>>,
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

impl Modules {
    fn read(files: &[&File]) -> Self {
        let mut modules = BTreeMap::new();
        for (index, file) in files.iter().enumerate() {
            read_module(&without_tests(&file.tokens), module_path(&file.path), index, &mut modules);
        }
        let mut modules = Self(modules);
        // Imports may refer to other imports of the same module, in any order.
        let paths: Vec<Path> = modules.0.keys().cloned().collect();
        for path in paths {
            for _ in 0..2 {
                let module = &modules.0[&path];
                let named =
                    module.paths.iter().filter_map(|used| Some((used.import.clone()?, used)));
                let imports = named.map(|(name, used)| (name, modules.absolute(&path, &used.path)));
                let imports = imports.collect();
                modules.0.get_mut(&path).expect("every file has a module").imports = imports;
            }
        }
        modules
    }

    fn needs(&self, files: &[&File]) -> Needs {
        let mut needs: Needs = files.iter().map(|_| BTreeMap::new()).collect();
        for (path, module) in &self.0 {
            for used in &module.paths {
                let Some(absolute) = self.absolute(path, &used.path) else { continue };
                let Some((target, is_module)) = self.definition(absolute) else { continue };
                // Importing a module doesn't count as a dependency; using names from it does. The
                // path in `pub(in a::b)` doesn't count either.
                let is_free = is_module;
                let is_facade = used.is_public && target.starts_with(path);
                let file = self.0[&target].file;
                if file != module.file && !is_free && !is_facade {
                    let need = || Need { line: used.line, name: used.path.join("::") };
                    needs[module.file].entry(file).or_insert_with(need);
                }
            }
        }
        needs
    }

    /// Converts a path in `module` to a path from the crate root. Returns `None` for other crates.
    fn absolute(&self, module: &[String], written: &[String]) -> Option<Path> {
        let mut base = module.to_vec();
        let mut rest = written;
        match rest[0].as_str() {
            "crate" => base.clear(),
            "self" | "super" => {}
            name => {
                let child = [module, &[name.to_owned()]].concat();
                if self.0.contains_key(&child) {
                    return Some([module, written].concat());
                }
                let imported = self.0[module].imports.get(name)?.clone()?;
                return Some([&imported, &written[1..]].concat());
            }
        }
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                _ => break,
            }
            rest = others;
        }
        Some([&base, rest].concat())
    }

    /// Returns the module that defines `path`, and whether `path` is the module itself. Returns
    /// `None` for other crates.
    fn definition(&self, mut path: Path) -> Option<(Path, bool)> {
        for _ in 0..16 {
            let is_module = |length: &usize| self.0.contains_key(&path[..*length]);
            let length = (0..=path.len()).take_while(is_module).last()?;
            let Some(name) = path.get(length) else { return Some((path, true)) };
            let module = &self.0[&path[..length]];
            match module.imports.get(name) {
                None => return Some((path[..length].to_vec(), false)),
                Some(None) => return None,
                Some(Some(target)) => path = [target, &path[length + 1..]].concat(),
            }
        }
        None
    }
}

/// Converts a file path to a module path, e.g. `crates/a/src/b/c.rs` to `["b", "c"]`.
fn module_path(path: &str) -> Path {
    let inside = path.split_once("/src/").map_or("", |(_, inside)| inside);
    let inside = inside.trim_end_matches(".rs");
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    match inside {
        "lib" | "main" => Vec::new(),
        _ => inside.split('/').map(str::to_owned).collect(),
    }
}

/// Returns the tokens without items marked `#[cfg(test)]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let Some(start) = find(rest, &["#", "[", "cfg", "(", "test", ")", "]"]).first() {
        kept.extend_from_slice(&rest[..*start]);
        rest = &rest[*start + 7..];
        let mut depth = 0;
        let end = rest.iter().position(|token| {
            match token.text.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            depth == 0 && matches!(token.text.as_str(), "}" | ";")
        });
        rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
    }
    kept.extend_from_slice(rest);
    kept
}

/// Collects the paths of a module. Inline modules belong to the same file.
fn read_module(tokens: &[Token], path: Path, file: usize, modules: &mut BTreeMap<Path, Module>) {
    let mut module = Module { file, ..Module::default() };
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text.as_str());
    let mut i = 0;
    while i < tokens.len() {
        if text(i) == "mod" && text(i + 2) == "{" {
            let length = closing(&tokens[i + 2..]);
            let inner = [&path[..], &[text(i + 1).to_owned()]].concat();
            read_module(&tokens[i + 3..i + 2 + length], inner, file, modules);
            i += 2 + length;
        } else if text(i) == "use" {
            let is_public = i > 0 && (text(i - 1) == "pub" || text(i - 1) == ")");
            let end = tokens[i..]
                .iter()
                .position(|token| token.text == ";")
                .map_or(tokens.len(), |end| i + end);
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
    modules.insert(path, module);
}

/// Parses `a::b::{c, d as e}`, where `before` is the preceding part of the path.
fn read_use(tokens: &[Token], before: &[String], is_public: bool, uses: &mut Vec<Used>) {
    let mut path = before.to_vec();
    let mut alias = None;
    let mut i = 0;
    let line = tokens.first().map_or(1, |token| token.line);
    while let Some(token) = tokens.get(i) {
        match token.text.as_str() {
            "{" => {
                let inner = &tokens[i + 1..i + closing(&tokens[i..])];
                let mut depth = 0;
                let parts = inner.split(|token| {
                    depth += i32::from(token.text == "{") - i32::from(token.text == "}");
                    depth == 0 && token.text == ","
                });
                parts
                    .filter(|part| !part.is_empty())
                    .for_each(|part| read_use(part, &path, is_public, uses));
                return;
            }
            "as" => alias = tokens.get(i + 1).map(|token| token.text.clone()),
            // `use a::{self}` is equivalent to `use a`.
            "self" if !path.is_empty() => {}
            "*" => return uses.push(Used { path, line, import: None, is_public }),
            word if is_word(word) && alias.is_none() => path.push(word.to_owned()),
            _ => {}
        }
        i += 1;
    }
    if let Some(last) = path.last() {
        let import = Some(alias.unwrap_or_else(|| last.clone()));
        uses.push(Used { path, line, import, is_public });
    }
}

/// Returns the index of the bracket that closes the first one.
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
    use crate::tidy::testing::{check as check_rule, tree};

    #[track_caller]
    fn check<const N: usize>(files: [(&str, &str); N], expect: &str) {
        let files = files.map(|(name, text)| (format!("crates/a/src/{name}"), text));
        let files = files.each_ref().map(|(path, text)| (path.as_str(), *text));
        check_rule(do_not_exist, &tree(files), expect);
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
        let share = "move the shared code into its own module";
        check(
            [
                ("lib.rs", "mod b;\nmod c;\npub use b::B;"),
                ("b.rs", "\nuse crate::c::{self, C as Other};\npub struct B(Other);"),
                ("c.rs", "use crate::{B};\npub struct C(B);"),
            ],
            &format!(
                "crates/a/src/b.rs:2: `crate::c::C` closes a module cycle, crates/a/src/b.rs → crates/a/src/c.rs → crates/a/src/b.rs: {share}"
            ),
        );
        // A parent that uses its child, which in turn uses an item of the parent.
        check(
            [
                ("lib.rs", "mod b;"),
                ("b/mod.rs", "mod c;\npub struct B;\nfn f() { c::g() }"),
                ("b/c.rs", "use super::B;\npub fn g(_: B) {}"),
            ],
            &format!(
                "crates/a/src/b/c.rs:1: `super::B` closes a module cycle, crates/a/src/b/c.rs → crates/a/src/b/mod.rs → crates/a/src/b/c.rs: {share}"
            ),
        );
        // Three files, with a path in code instead of an import. The inline module belongs to its
        // file.
        check(
            [
                ("main.rs", "mod b; mod c; mod d;"),
                ("b.rs", "mod inner {\n    pub fn f() { crate::c::f() }\n}"),
                ("c.rs", "use crate::d;\npub fn f() { d::f() }"),
                ("d.rs", "pub fn f() { super::b::inner::f() }"),
            ],
            &format!(
                "crates/a/src/b.rs:2: `crate::c::f` closes a module cycle, crates/a/src/b.rs → crates/a/src/c.rs → crates/a/src/d.rs → crates/a/src/b.rs: {share}"
            ),
        );
    }
}
