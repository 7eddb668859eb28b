//! The embedded example files.

use std::io::{self, Read};

use flate2::read::DeflateDecoder;

/// An example file.
#[derive(Debug)]
pub struct ExampleFile {
    /// Path relative to the project with `/` as a separator.
    pub path: &'static str,
    /// Size in bytes.
    pub size: usize,
    deflated: &'static [u8],
}

impl ExampleFile {
    /// Returns the content.
    ///
    /// # Errors
    /// Returns an error if the program itself is damaged.
    pub fn content(&self) -> io::Result<Vec<u8>> {
        let mut content = Vec::with_capacity(self.size);
        DeflateDecoder::new(self.deflated).read_to_end(&mut content)?;
        Ok(if self.path.ends_with(".safetensors") { from_planes(&content) } else { content })
    }
}

/// Puts the bytes of numbers together that the build script has sorted.
fn from_planes(planes: &[u8]) -> Vec<u8> {
    let mut content = vec![0; planes.len()];
    let places = (0..4).flat_map(|first| (first..planes.len()).step_by(4));
    for (place, byte) in places.zip(planes) {
        content[place] = *byte;
    }
    content
}

/// All example files, sorted by path.
pub static FILES: &[ExampleFile] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_those_of_the_repository() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(FILES.len() > 50);
        for file in FILES {
            let content = file.content().unwrap();
            assert_eq!(content.len(), file.size, "{}", file.path);
            // Links of pages that leave the project are replaced.
            if !file.path.ends_with(".md") {
                assert_eq!(content, std::fs::read(root.join(file.path)).unwrap(), "{}", file.path);
            }
        }
    }
}
