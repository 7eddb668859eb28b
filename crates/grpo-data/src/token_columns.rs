//! Numbers per token by name.

use std::borrow::Cow;
use std::ops::{Index, IndexMut};

/// Lists of numbers by name, e.g. one number per token of a completion, in the order in which they were
/// added.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenColumns<T>(Vec<(Cow<'static, str>, Vec<T>)>);

impl<T> Default for TokenColumns<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> TokenColumns<T> {
    /// Adds a column.
    ///
    /// # Panics
    /// Panics if there is one of this name.
    pub fn push(&mut self, name: impl Into<Cow<'static, str>>, values: Vec<T>) {
        let name = name.into();
        assert!(self.get(&name).is_none(), "the column `{name}` was added twice");
        self.0.push((name, values));
    }

    /// Returns the column of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&[T]> {
        self.iter().find(|(known, _)| *known == name).map(|(_, values)| values)
    }

    /// Returns an iterator over names and columns.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[T])> {
        self.0.iter().map(|(name, values)| (&**name, values.as_slice()))
    }

    /// Returns an iterator over names and columns that can be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Vec<T>)> {
        self.0.iter_mut().map(|(name, values)| (&**name, values))
    }

    /// Returns columns of the same names with other numbers.
    pub fn map<U>(&self, of: impl Fn(&T) -> U) -> TokenColumns<U> {
        let columns = self.0.iter();
        let columns = columns.map(|(name, all)| (name.clone(), all.iter().map(&of).collect()));
        TokenColumns(columns.collect())
    }
}

impl<T, N: Into<Cow<'static, str>>> FromIterator<(N, Vec<T>)> for TokenColumns<T> {
    fn from_iter<I: IntoIterator<Item = (N, Vec<T>)>>(columns: I) -> Self {
        let mut all = Self::default();
        columns.into_iter().for_each(|(name, values)| all.push(name, values));
        all
    }
}

impl<T> Index<&str> for TokenColumns<T> {
    type Output = [T];

    /// # Panics
    /// Panics if there is no column of this name.
    fn index(&self, name: &str) -> &[T] {
        self.get(name).unwrap_or_else(|| panic!("there is no column `{name}`"))
    }
}

impl<T> IndexMut<&str> for TokenColumns<T> {
    /// # Panics
    /// Panics if there is no column of this name.
    fn index_mut(&mut self, name: &str) -> &mut [T] {
        let found = self.iter_mut().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("there is no column `{name}`")).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_their_order() {
        let mut columns: TokenColumns<f64> =
            [("b", vec![1.5, 2.0]), ("a", vec![3.0, 4.0])].into_iter().collect();
        let names = |columns: &TokenColumns<f64>| -> Vec<String> {
            columns.iter().map(|(name, _)| name.to_owned()).collect()
        };
        assert_eq!(names(&columns), ["b", "a"]);
        assert_eq!((&columns["a"], columns.get("c")), (&[3.0, 4.0][..], None));
        columns["a"][0] = 0.0;
        columns.push("c".to_owned(), vec![5.0, 6.0]);
        assert_eq!(&columns.map(|value| *value as f32)["a"], [0.0, 4.0]);
        assert_eq!(names(&columns), ["b", "a", "c"]);
    }

    #[test]
    #[should_panic(expected = "the column `a` was added twice")]
    fn a_name_belongs_to_one_column() {
        let _twice: TokenColumns<f32> = [("a", vec![1.0]), ("a", vec![1.0])].into_iter().collect();
    }
}
