//! Wikitext to running text.
//!
//! The crate `wikrs` parses links, emphasis, headings and lists, and renders them plain. What it
//! cannot know to leave out goes first: comments, references, formulas, galleries, tables, files
//! and categories, templates (a few that stand for words are replaced by these words), and the
//! sections after the article proper. Removals leave holes such as `( ; )`, which are tidied last.

use std::collections::{BTreeSet, HashMap};

use super::templates;

/// Elements that are dropped with their content.
const DROPPED: [&str; 14] = [
    "ref",
    "references",
    "math",
    "gallery",
    "timeline",
    "imagemap",
    "score",
    "syntaxhighlight",
    "source",
    "table",
    "hiero",
    "graph",
    "includeonly",
    "templatestyles",
];

/// Link targets in these namespaces are no part of the text.
const DROPPED_LINKS: [&str; 4] = ["file", "image", "category", "media"];

/// Headings of the sections that hold references and links instead of text.
const APPARATUS: [&str; 17] = [
    "see also",
    "references",
    "notes",
    "external links",
    "further reading",
    "bibliography",
    "sources",
    "footnotes",
    "citations",
    "notes and references",
    "references and notes",
    "works cited",
    "literature",
    "gallery",
    "general references",
    "cited sources",
    "references and sources",
];

/// The running text of an article, and whether inline templates were removed from it.
///
/// ```
/// use axmem_datasets::reader::wikitext::to_text;
///
/// let (text, holes) = to_text("'''Ulm''' ({{IPA-de|ʊlm}}) is a [[City|city]].<ref>x</ref>");
/// assert_eq!((text.as_str(), holes), ("Ulm is a city.", true));
/// ```
pub fn to_text(wikitext: &str) -> (String, bool) {
    let without_elements = drop_elements(wikitext);
    let mut stripper = Stripper::new(&without_elements);
    stripper.strip(0, without_elements.len(), 0);
    let holes = stripper.holes;
    let prose = drop_sections(&stripper.out);
    let parsed = wikrs::parser::parse(&prose);
    (tidy(&wikrs::render::plain(&parsed.nodes)), holes)
}

/// The text without comments and without the elements of [`DROPPED`].
fn drop_elements(text: &str) -> String {
    // Same length byte by byte, so that positions agree.
    let lower = text.to_ascii_lowercase();
    let mut out = String::with_capacity(text.len());
    let mut unclosed = BTreeSet::new();
    let mut kept = 0;
    let mut from = 0;
    while let Some(offset) = lower[from..].find('<') {
        let start = from + offset;
        let end = if lower[start..].starts_with("<!--") {
            Some(find(&lower, start, "-->").unwrap_or(text.len()))
        } else {
            DROPPED
                .iter()
                .find(|&&name| opens(&lower[start..], name))
                .and_then(|&name| element_end(&lower, start, name, &mut unclosed))
        };
        match end {
            Some(end) => {
                out.push_str(&text[kept..start]);
                (kept, from) = (end, end);
            }
            None => from = start + 1,
        }
    }
    out.push_str(&text[kept..]);
    out
}

fn find(text: &str, from: usize, what: &str) -> Option<usize> {
    text[from..]
        .find(what)
        .map(|offset| from + offset + what.len())
}

fn opens(text: &str, name: &str) -> bool {
    text[1..]
        .strip_prefix(name)
        .is_some_and(|rest| rest.starts_with([' ', '\t', '\n', '>', '/']))
}

/// The end of the element `name` that opens at `start`; `None` if its tag is not closed. A name
/// whose closing tag was once not found is not searched again, which keeps this linear.
fn element_end(
    text: &str,
    start: usize,
    name: &'static str,
    unclosed: &mut BTreeSet<&'static str>,
) -> Option<usize> {
    let tag = find(text, start, ">")?;
    if text[..tag].ends_with("/>") || unclosed.contains(name) {
        return Some(tag);
    }
    let end = find(text, tag, &format!("</{name}>"));
    if end.is_none() {
        unclosed.insert(name);
    }
    Some(end.unwrap_or(tag))
}

/// Removes templates, tables and links that are no text. Pairs of brackets are matched once for
/// the whole page, so that unbalanced pages stay linear.
struct Stripper<'a> {
    text: &'a str,
    /// From the start of an opening pair to the end of its closing one.
    ends: HashMap<usize, usize>,
    out: String,
    holes: bool,
}

/// Templates within arguments of templates are looked into this deep.
const DEEPEST: usize = 8;

impl<'a> Stripper<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            ends: matching(text),
            out: String::with_capacity(text.len() / 2),
            holes: false,
        }
    }

    /// Appends what remains of `text[from..to]`.
    fn strip(&mut self, mut from: usize, to: usize, depth: usize) {
        let text = self.text;
        let mut kept = from;
        while let Some(offset) = text[from..to].find(['{', '[', '_']) {
            let start = from + offset;
            let end = self.ends.get(&start).copied().filter(|&end| end <= to);
            let rest = &text[start..to];
            if let Some(end) = end {
                let inner = &text[start + 2..end - 2];
                if rest.starts_with("{{") {
                    self.out.push_str(&text[kept..start]);
                    self.template(start + 2, end - 2, depth);
                    (kept, from) = (end, end);
                } else if rest.starts_with("{|") || is_dropped_link(inner) {
                    self.out.push_str(&text[kept..start]);
                    (kept, from) = (end, end);
                } else {
                    from = start + 2;
                }
            } else if rest.starts_with("{{") || rest.starts_with("{|") {
                // Never closed: the line is lost, not the article.
                self.out.push_str(&text[kept..start]);
                let end = rest.find('\n').map_or(to, |line| start + line);
                (kept, from) = (end, end);
            } else if let Some(length) = magic_word(rest) {
                self.out.push_str(&text[kept..start]);
                (kept, from) = (start + length, start + length);
            } else {
                from = start + 1;
            }
        }
        self.out.push_str(&text[kept..to]);
    }

    /// Appends what a template stands for, or notes that it left a hole.
    fn template(&mut self, from: usize, to: usize, depth: usize) {
        let parts = self.split(from, to);
        let name = &self.text[parts[0].0..parts[0].1];
        let wanted = if depth < DEEPEST {
            templates::words(name)
        } else {
            None
        };
        if let Some(words) = wanted {
            let mut arguments = Vec::new();
            for &(start, end) in &parts[1..] {
                let before = self.out.len();
                self.strip(start, end, depth + 1);
                arguments.push(self.out.split_off(before).trim().to_owned());
            }
            let replacement = words(name, &arguments);
            self.out.push_str(&replacement);
        } else if !templates::is_silent(name) {
            let line = self.out.rsplit('\n').next().unwrap_or_default();
            self.holes |= line.contains(char::is_alphanumeric);
        }
    }

    /// The parts of a template between its own bars, as ranges.
    fn split(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        let mut start = from;
        let mut at = from;
        while let Some(offset) = self.text[at..to].find(['|', '{', '[']) {
            at += offset;
            if self.text.as_bytes()[at] == b'|' {
                parts.push((start, at));
                start = at + 1;
                at += 1;
            } else {
                at = self
                    .ends
                    .get(&at)
                    .copied()
                    .filter(|&end| end <= to)
                    .unwrap_or(at + 1);
            }
        }
        parts.push((start, to));
        parts
    }
}

/// Matches `{{ }}`, `{| |}` and `[[ ]]` over the whole page: start of the opening pair to the end
/// of the closing one.
fn matching(text: &str) -> HashMap<usize, usize> {
    let bytes = text.as_bytes();
    let mut ends = HashMap::new();
    let mut open: Vec<(u8, usize)> = Vec::new();
    let mut at = 0;
    while at + 1 < bytes.len() {
        let closes = |kind: u8| open.last().is_some_and(|&(top, _)| top == kind);
        let close = match (bytes[at], bytes[at + 1]) {
            (b'{', b'{') => {
                open.push((b'{', at));
                None
            }
            (b'{', b'|') if starts_line(bytes, at) => {
                open.push((b'|', at));
                None
            }
            (b'[', b'[') => {
                open.push((b'[', at));
                None
            }
            (b'|', b'}') if closes(b'|') && starts_line(bytes, at) => Some(b'|'),
            (b'}', b'}') => Some(b'{'),
            (b']', b']') => Some(b'['),
            _ => {
                at += 1;
                continue;
            }
        };
        if let Some(kind) = close {
            // A link never spans what encloses it, so a missing `]]` must not hide a `}}`.
            let top = match kind {
                b'[' => open
                    .last()
                    .filter(|&&(top, _)| top == b'[')
                    .map(|_| open.len() - 1),
                _ => open
                    .iter()
                    .rposition(|&(top, _)| top != b'[')
                    .filter(|&index| open[index].0 == kind),
            };
            if let Some(index) = top {
                ends.insert(open[index].1, at + 2);
                open.truncate(index);
            }
        }
        at += 2;
    }
    ends
}

fn starts_line(bytes: &[u8], at: usize) -> bool {
    bytes[..at]
        .iter()
        .rev()
        .find(|byte| !matches!(byte, b' ' | b'\t' | b':' | b'*' | b'#'))
        .is_none_or(|&byte| byte == b'\n')
}

fn is_dropped_link(inner: &str) -> bool {
    let Some((prefix, _)) = inner.split_once(':') else {
        return false;
    };
    let prefix = prefix.trim();
    let is_language = (2..=3).contains(&prefix.len())
        && prefix.bytes().all(|byte| byte.is_ascii_lowercase())
        && !inner.contains('|');
    is_language
        || DROPPED_LINKS
            .iter()
            .any(|name| prefix.eq_ignore_ascii_case(name))
}

/// The length of a switch such as `__NOTOC__` at the start of `text`.
fn magic_word(text: &str) -> Option<usize> {
    let inner = text.strip_prefix("__")?;
    let end = inner.find("__").filter(|&end| end > 2)?;
    inner[..end]
        .bytes()
        .all(|byte| byte.is_ascii_uppercase())
        .then_some(end + 4)
}

/// Level and title of a heading line.
fn heading(line: &str) -> Option<(usize, &str)> {
    let line = line.trim();
    let level = line.bytes().take_while(|&byte| byte == b'=').count();
    let closing = line.bytes().rev().take_while(|&byte| byte == b'=').count();
    let level = level.min(closing);
    (level > 0 && line.len() > 2 * level).then(|| (level, line[level..line.len() - level].trim()))
}

/// The text without its apparatus and without headings of nothing.
fn drop_sections(text: &str) -> String {
    let mut skipped: Option<usize> = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        if let Some((level, title)) = heading(line)
            && skipped.is_none_or(|skipped| level <= skipped)
        {
            let title = title.trim_matches('\'').to_lowercase();
            skipped = APPARATUS.contains(&title.trim()).then_some(level);
        }
        if skipped.is_none() {
            lines.push(line);
        }
    }
    // From the end: a heading stays if text or a deeper heading that stays comes next.
    let mut kept = Vec::new();
    let mut next = 0;
    for line in lines.into_iter().rev() {
        match heading(line) {
            Some((level, _)) if next <= level => continue,
            Some((level, _)) => next = level,
            None if line.chars().any(char::is_alphanumeric) => next = usize::MAX,
            None => {}
        }
        kept.push(line);
    }
    kept.reverse();
    kept.join("\n")
}

/// Single spaces, single blank lines, no empty brackets, no space before a comma.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut blank = false;
    for line in text.lines() {
        let line = tidy_line(&without_stray_markup(line));
        if line.chars().any(|c| !c.is_ascii_punctuation() && c != ' ') {
            if !out.is_empty() {
                out.push_str(if blank { "\n\n" } else { "\n" });
            }
            out.push_str(&line);
            blank = false;
        } else {
            blank = true;
        }
    }
    out
}

/// The line without the quote marks and link brackets that unbalanced markup leaves behind.
fn without_stray_markup(line: &str) -> String {
    let last_close = line.rfind("]]");
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['\'', '[']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let quotes = rest.len() - rest.trim_start_matches('\'').len();
        let closes = last_close.is_some_and(|close| close > line.len() - rest.len());
        let link = rest.strip_prefix("[[").filter(|_| closes);
        if quotes > 0 {
            rest = &rest[quotes..];
            // Four are an apostrophe before bold text; three before an s, one after italic text.
            let possessive = quotes == 3
                && rest
                    .strip_prefix('s')
                    .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
            if quotes == 1 || quotes == 4 || possessive {
                out.push('\'');
            }
        } else if let Some((inner, after)) = link.and_then(|link| link.split_once("]]")) {
            out.push_str(inner.rsplit('|').next().unwrap_or_default());
            rest = after;
        } else {
            out.push('[');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

fn tidy_line(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        let ends_word = characters.peek().is_none_or(|next| !next.is_alphanumeric());
        match c {
            '\u{200b}' | '\u{feff}' => {}
            _ if c.is_whitespace() => {
                if !out.is_empty() && !out.ends_with([' ', '(']) {
                    out.push(' ');
                }
            }
            ')' => {
                let inner = out.trim_end_matches([' ', ',', ';', ':']).len();
                out.truncate(inner);
                if out.ends_with('(') {
                    out.pop();
                    out.truncate(out.trim_end().len());
                } else {
                    out.push(')');
                }
            }
            ',' | ';' if out.ends_with('(') => {}
            ',' | ';' | '.' if ends_word && out.ends_with(' ') => {
                out.pop();
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(wikitext: &str) -> String {
        to_text(wikitext).0
    }

    #[test]
    fn markup_that_is_no_text_leaves_nothing_behind() {
        for (wikitext, expected) in [
            ("a<!-- c --> b", "a b"),
            (
                "a<ref name=\"x\">{{cite|t=}}</ref> b<ref name=x /> c",
                "a b c",
            ),
            ("[[File:a.jpg|thumb|A [[link|caption]] here]]Text.", "Text."),
            ("Text.\n[[Category:Towns]]\n[[fr:Ville]]", "Text."),
            ("{{Infobox\n| a = {{b|c}}\n| d = [[e]]\n}}\nText.", "Text."),
            (
                "Before.\n{| class=x\n! h\n|-\n| {{c|d}} || e\n|}\nAfter.",
                "Before.\n\nAfter.",
            ),
            ("''a'' '''b''' [[c|d]] [[e]] [http://f g]", "a b d e g"),
            ("__NOTOC__Text &amp; more", "Text & more"),
            ("Open {{never closed\nNext line.", "Open\nNext line."),
            ("'''X''' ({{lang-el|}}; {{IPA-x|y}}) is.", "X is."),
            ("X (born {{x}} , 1900 ) is .", "X (born, 1900) is."),
            (
                "''Actors (Catalan: '''Actors''') isn't it.",
                "Actors (Catalan: Actors) isn't it.",
            ),
        ] {
            assert_eq!(text(wikitext), expected, "{wikitext}");
        }
    }

    #[test]
    fn apparatus_and_empty_sections_go() {
        let wikitext = "Lead.\n== A ==\n=== Empty ===\n{{x}}\n=== B ===\nText.\n== See also ==\n* x\n\
                        === Deeper ===\ny\n== C ==\nEnd.\n== External links ==\n* z";
        assert_eq!(text(wikitext), "Lead.\n\nA\n\nB\n\nText.\n\nC\n\nEnd.");
    }

    #[test]
    fn templates_that_are_words_become_words_and_others_are_told() {
        let (words, holes) = to_text("It is {{convert|5|km|mi}} {{nowrap|long [[a|b]]}}{{cn}}.");
        assert_eq!((words.as_str(), holes), ("It is 5 km long b.", false));
        assert!(to_text("It is {{Unknown|x}} long.").1);
        assert!(!to_text("{{Infobox|x}}\nIt is long.").1);
    }

    #[test]
    fn unbalanced_pages_take_linear_time() {
        let start = std::time::Instant::now();
        for part in ["{{", "[[", "{|\n", "<ref>", "<!--", "}}", "[[a|", "{{a|[["] {
            to_text(&part.repeat(50_000));
        }
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    }
}
