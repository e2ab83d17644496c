//! Titles that name the same article: normalised, redirects resolved in both directions.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization as _;

use crate::cluster::UnionFind;
use crate::random;

/// A title after NFKC, in lower case, underscores as spaces, runs of white space folded to one
/// space, none at the ends.
///
/// ```
/// use axmem_datasets::background::normalised_title;
///
/// assert_eq!(normalised_title(" Alain_Connes\u{a0}"), "alain connes");
/// ```
pub fn normalised_title(title: &str) -> String {
    let lower = title.nfkc().collect::<String>().to_lowercase();
    let words: Vec<&str> = lower
        .split(|letter: char| letter == '_' || letter.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

/// Half of the hash of a normalised title, which stands for the title, or for all titles of its
/// class: titles themselves would take several times the memory for millions of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TitleKey(u128);

impl TitleKey {
    /// The key of one title; `None` if it is empty.
    pub fn of(title: &str) -> Option<Self> {
        let title = normalised_title(title);
        let digest = random::digest(0, "title", &[title.as_bytes()]);
        let half = digest[..16].try_into().expect("a digest has 32 bytes");
        (!title.is_empty()).then(|| Self(u128::from_le_bytes(half)))
    }
}

/// Classes of titles connected by redirects. A class needs no order: loops of redirects and
/// titles redirected twice are as good as a chain.
#[derive(Clone, Debug, Default)]
pub struct Titles {
    index: HashMap<TitleKey, usize>,
    keys: Vec<TitleKey>,
    classes: UnionFind,
}

impl Titles {
    /// Classes from pairs (from, to).
    pub fn new(redirects: &[(String, String)]) -> Self {
        let mut titles = Self::default();
        for (from, to) in redirects {
            titles.redirect(from, to);
        }
        titles
    }

    /// Adds a redirect; a target's section (`Article#Section`) counts as its article.
    pub fn redirect(&mut self, from: &str, to: &str) {
        let article = to.split_once('#').map_or(to, |(article, _)| article);
        if let (Some(from), Some(to)) = (TitleKey::of(from), TitleKey::of(article)) {
            let (from, to) = (self.position(from), self.position(to));
            self.classes.join(from, to);
        }
    }

    fn position(&mut self, title: TitleKey) -> usize {
        if let Some(&position) = self.index.get(&title) {
            return position;
        }
        self.keys.push(title);
        let position = self.classes.push();
        self.index.insert(title, position);
        position
    }

    /// What stands for the class of a title; `None` for an empty title.
    pub fn resolve(&self, title: &str) -> Option<TitleKey> {
        TitleKey::of(title).map(|title| self.class(title))
    }

    /// As [`Titles::resolve`], from the key of the title alone.
    pub fn class(&self, title: TitleKey) -> TitleKey {
        self.index
            .get(&title)
            .map_or(title, |&position| self.keys[self.classes.find(position)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_over_spellings_and_redirects() {
        let pairs = [
            ("UK", "United Kingdom#History"),
            ("Britain", "UK"),
            ("Loop", "Loop"),
        ];
        let titles = Titles::new(&pairs.map(|(from, to)| (from.to_owned(), to.to_owned())));
        let resolved = titles.resolve("united_kingdom");
        assert!(resolved.is_some());
        for title in ["UK", " uk", "BRITAIN", "United  Kingdom", "Ｕ\u{ff2b}"] {
            assert_eq!(titles.resolve(title), resolved, "{title}");
        }
        for title in ["France", "Loop"] {
            assert_eq!(titles.resolve(title), TitleKey::of(title));
            assert_ne!(titles.resolve(title), resolved);
        }
        assert_eq!(titles.resolve(" _ "), None);
    }
}
