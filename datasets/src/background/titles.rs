//! Titles that name the same article: normalised, redirects resolved in both directions.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization as _;

use crate::cluster::UnionFind;

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

/// Classes of titles connected by redirects. A class needs no order: loops of redirects and
/// titles redirected twice are as good as a chain.
#[derive(Clone, Debug)]
pub struct Titles {
    index: HashMap<String, usize>,
    names: Vec<String>,
    classes: UnionFind,
}

impl Titles {
    /// Classes from pairs (from, to); a target's section (`Article#Section`) counts as its
    /// article.
    pub fn new(redirects: &[(String, String)]) -> Self {
        let mut titles = Self {
            index: HashMap::new(),
            names: Vec::new(),
            classes: UnionFind::default(),
        };
        for (from, to) in redirects {
            let article = to
                .split_once('#')
                .map_or(to.as_str(), |(article, _)| article);
            let (from, to) = (normalised_title(from), normalised_title(article));
            if !from.is_empty() && !to.is_empty() {
                let (from, to) = (titles.position(from), titles.position(to));
                titles.classes.join(from, to);
            }
        }
        titles
    }

    fn position(&mut self, title: String) -> usize {
        if let Some(&position) = self.index.get(&title) {
            return position;
        }
        self.names.push(title.clone());
        let position = self.classes.push();
        self.index.insert(title, position);
        position
    }

    /// The name of the class of a title; `None` for an empty title.
    pub fn resolve(&self, title: &str) -> Option<String> {
        let title = normalised_title(title);
        match self.index.get(&title) {
            Some(&position) => Some(self.names[self.classes.find(position)].clone()),
            None => (!title.is_empty()).then_some(title),
        }
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
        assert_eq!(titles.resolve("France").as_deref(), Some("france"));
        assert_eq!(titles.resolve("Loop").as_deref(), Some("loop"));
        assert_eq!(titles.resolve(" _ "), None);
    }
}
