//! English-like articles from a small seeded grammar, for tests and trials without a network.
//!
//! Every article is about one invented thing; its sentences carry invented names, years and
//! figures, so that articles differ and hardly a sentence occurs twice. Each draw is a pure
//! function of seed, article and position, so the text is the same on every machine.

use std::io::Write as _;
use std::path::Path;

use serde_json::json;

use super::{Source, SourceFile};
use crate::error::{Error, Result};
use crate::{files, random};

/// The largest number of articles, and of sentences in one.
pub(super) const LARGEST: u64 = 1_000_000;

/// Part of the file's name: raise it with any change of the text that comes out.
const VERSION: u32 = 1;

const KINDS: [&str; 12] = [
    "river",
    "village",
    "bridge",
    "composer",
    "lighthouse",
    "orchard",
    "railway",
    "observatory",
    "dialect",
    "cathedral",
    "island",
    "market town",
];

const ONSETS: [&str; 18] = [
    "b", "br", "d", "dr", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "st", "t", "v", "w",
];
const NUCLEI: [&str; 8] = ["a", "e", "i", "o", "u", "ae", "ei", "ou"];
const CODAS: [&str; 10] = ["", "l", "n", "r", "s", "th", "nd", "m", "rk", "sk"];

const ADJECTIVES: [&str; 24] = [
    "narrow",
    "ancient",
    "quiet",
    "northern",
    "celebrated",
    "shallow",
    "wooden",
    "forgotten",
    "crowded",
    "pale",
    "steep",
    "unfinished",
    "royal",
    "mossy",
    "distant",
    "modest",
    "brass",
    "salty",
    "winding",
    "public",
    "damp",
    "golden",
    "plain",
    "early",
];
const NOUNS: [&str; 30] = [
    "harbour",
    "library",
    "copper mine",
    "granary",
    "tower",
    "school",
    "garden",
    "ferry",
    "mill",
    "chapel",
    "archive",
    "quarry",
    "theatre",
    "canal",
    "vineyard",
    "foundry",
    "aqueduct",
    "fort",
    "printing house",
    "meadow",
    "clock",
    "museum",
    "tannery",
    "workshop",
    "terrace",
    "reservoir",
    "guild hall",
    "bakery",
    "cistern",
    "pier",
];
const PEOPLE: [&str; 16] = [
    "surveyor",
    "painter",
    "merchant",
    "botanist",
    "printer",
    "bishop",
    "engineer",
    "historian",
    "violinist",
    "governor",
    "weaver",
    "sailor",
    "teacher",
    "astronomer",
    "mason",
    "poet",
];
const VERBS: [&str; 16] = [
    "restored",
    "described",
    "measured",
    "bought",
    "painted",
    "rebuilt",
    "abandoned",
    "mapped",
    "flooded",
    "extended",
    "repaired",
    "sold",
    "inspected",
    "praised",
    "closed",
    "doubled",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Sentence patterns. `@` is the article's subject; the other marks are drawn anew each time:
/// `N` a name, `Y` a year, `#` a number, `a` an adjective, `o` a noun, `p` an occupation, `v` a
/// verb in the past tense, `m` a month.
const PATTERNS: [&str; 20] = [
    "In {Y} the {p} {N} {v} the {a} {o} near @.",
    "About {#} people lived beside the {o} of {N} in {Y}.",
    "@ is known for its {a} {o}, which the {p} {N} {v} in {m} {Y}.",
    "The {o} at {N} stands {#} metres above the {a} {o}.",
    "After a storm in {m} {Y}, the {p} {N} {v} the {o} and left {#} letters about it.",
    "Every {m} the {a} {o} of {N} draws some {#} visitors to @.",
    "A {p} from {N} wrote in {Y} that the {o} was {a} and the {o} {a}.",
    "The road from @ to {N} passes {#} {a} bridges and one {o}.",
    "Between {Y} and {Y} the {a} {o} was {v} {#} times by order of {N}.",
    "{N} and {N} {v} the {o} together, although the {p} {N} had warned them in {Y}.",
    "The {a} {o} of {N}, {v} in {Y}, holds {#} drawings of @.",
    "When the {o} burned in {m} {Y}, only the {a} {o} of {N} was saved.",
    "Of the {#} houses counted by the {p} {N}, most lay behind the {a} {o}.",
    "The {p} {N} is said to have walked {#} miles to see the {o} of @ in {Y}.",
    "A {a} {o} was added in {Y} at a cost of {#} crowns, paid by {N}.",
    "Since {Y} the people of {N} have kept a {a} {o} in memory of the {p} {N}.",
    "The {o} was {v} twice, first by {N} in {Y} and then by a {p} called {N}.",
    "On the {a} side of @ lies {N}, whose {o} was {v} before {Y}.",
    "No {p} has explained why the {o} of {N} is {a} for {#} days after {m}.",
    "Its {a} {o} and {a} {o} were {v} by the {p} {N} for {#} crowns in {Y}.",
];

/// Writes the articles as JSON lines into the cache, unless they are there.
pub(super) fn fetch(
    source: &Source,
    articles: usize,
    sentences: usize,
    seed: u64,
    cache: &Path,
) -> Result<SourceFile> {
    let folder = cache.join("grammar");
    let path = folder.join(format!(
        "articles-{articles}-sentences-{sentences}-seed-{seed}-v{VERSION}.jsonl"
    ));
    if !path.is_file() {
        files::create_dir_all(&folder)?;
        let width = articles.to_string().len().max(4);
        files::write_atomic_with(&path, |file| {
            for number in 1..=articles {
                let (title, text) = article(seed, number as u64, sentences);
                let id = format!("grammar-{number:0width$}");
                let line = json!({ "id": id, "title": title, "text": text });
                writeln!(file, "{line}").map_err(Error::write("write", &path))?;
            }
            Ok(())
        })?;
    }
    SourceFile::describe(path, source.to_string())
}

/// Title and text of one article.
fn article(seed: u64, number: u64, sentences: usize) -> (String, String) {
    let mut draws = Draws {
        seed,
        article: number,
        next: 0,
    };
    let title = draws.name();
    let kind = draws.one_of(&KINDS);
    let mut text = format!(
        "{title} is a {kind} near {}, first named in {}.",
        draws.name(),
        draws.year()
    );
    for _ in 1..sentences {
        text.push(' ');
        let pattern = draws.one_of(&PATTERNS);
        draws.fill(pattern, &title, &mut text);
    }
    (title, text)
}

/// The numbered draws of one article.
struct Draws {
    seed: u64,
    article: u64,
    next: u64,
}

impl Draws {
    /// A whole number below `limit`; the bias of the remainder is below 2⁻³² for these limits.
    fn below(&mut self, limit: u64) -> u64 {
        let name = [self.article.to_le_bytes(), self.next.to_le_bytes()];
        self.next += 1;
        let bytes = random::digest(self.seed, "grammar", &[&name[0], &name[1]]);
        let word = u64::from_le_bytes(bytes[..8].try_into().expect("a digest has 32 bytes"));
        word % limit
    }

    fn one_of(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len() as u64) as usize]
    }

    fn year(&mut self) -> u64 {
        1400 + self.below(600)
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        for _ in 0..2 + self.below(2) {
            for part in [&ONSETS[..], &NUCLEI[..], &CODAS[..]] {
                name.push_str(self.one_of(part));
            }
        }
        name[..1].make_ascii_uppercase();
        name
    }

    /// Appends `pattern` with its marks filled.
    fn fill(&mut self, pattern: &str, subject: &str, text: &mut String) {
        let mut rest = pattern;
        while let Some(start) = rest.find(['{', '@']) {
            text.push_str(&rest[..start]);
            let mark = &rest[start..];
            if let Some(after) = mark.strip_prefix('@') {
                text.push_str(subject);
                rest = after;
                continue;
            }
            let (mark, after) = mark[1..]
                .split_once('}')
                .expect("patterns close their marks");
            match mark {
                "N" => text.push_str(&self.name()),
                "Y" => text.push_str(&self.year().to_string()),
                "#" => text.push_str(&(2 + self.below(900)).to_string()),
                "a" => text.push_str(self.one_of(&ADJECTIVES)),
                "o" => text.push_str(self.one_of(&NOUNS)),
                "p" => text.push_str(self.one_of(&PEOPLE)),
                "v" => text.push_str(self.one_of(&VERBS)),
                "m" => text.push_str(self.one_of(&MONTHS)),
                other => unreachable!("patterns have no mark {other}"),
            }
            rest = after;
        }
        text.push_str(rest);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_text_is_the_same_everywhere() {
        let (title, text) = article(1, 1, 3);
        assert_eq!(article(1, 1, 3), (title.clone(), text.clone()));
        assert!(text.starts_with(&format!("{title} is a ")));
        assert_eq!(text.matches('.').count(), 3);
        assert!(!text.contains(['{', '}', '@']));
        assert_eq!(
            files::sha256(text.as_bytes()),
            "f2848e7d28e12747ad4df485dea18491caa23f4e41ffd8d79251158f3549601b",
            "the text changed: raise VERSION\n{text}"
        );
    }

    #[test]
    fn articles_are_distinct_and_share_no_sentence() {
        let articles: Vec<_> = (1..=200).map(|number| article(3, number, 14)).collect();
        let titles: BTreeSet<_> = articles.iter().map(|(title, _)| title).collect();
        assert_eq!(titles.len(), articles.len());
        let sentences: Vec<_> = articles
            .iter()
            .flat_map(|(_, text)| text.split_inclusive(". "))
            .collect();
        let distinct: BTreeSet<_> = sentences.iter().collect();
        assert_eq!(distinct.len(), sentences.len());
        assert_ne!(article(3, 1, 14), article(4, 1, 14));
    }
}
