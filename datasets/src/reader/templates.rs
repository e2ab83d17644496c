//! What is known about the templates of English Wikipedia: which stand for words of the sentence
//! around them, which only carry references or notices, and which make a page a list of meanings.

/// From a template's name and arguments to the words it stands for.
type Words = fn(name: &str, arguments: &[String]) -> String;

/// The lower-case name with single spaces.
fn normal(name: &str) -> String {
    name.replace('_', " ").trim().to_lowercase()
}

/// The argument at `index` (from 0) among those without a name, or named by its number.
fn positional(arguments: &[String], index: usize) -> &str {
    let number = (index + 1).to_string();
    let named = arguments.iter().find_map(|argument| {
        let (key, value) = argument.split_once('=')?;
        (key.trim() == number).then(|| value.trim())
    });
    named
        .or_else(|| unnamed(arguments).nth(index))
        .unwrap_or_default()
}

fn unnamed(arguments: &[String]) -> impl Iterator<Item = &str> {
    arguments
        .iter()
        .map(String::as_str)
        .filter(|argument| !is_named(argument))
}

fn is_named(argument: &str) -> bool {
    argument.split_once('=').is_some_and(|(key, _)| {
        let key = key.trim();
        !key.is_empty()
            && key
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_- ".contains(c))
    })
}

/// How to write a template as words, if it is one of those that stand for words.
pub(super) fn words(name: &str) -> Option<Words> {
    let name = normal(name);
    let words: Words = match name.as_str() {
        "nowrap" | "nobr" | "small" | "smaller" | "big" | "larger" | "sc" | "smallcaps" | "em"
        | "strong" | "abbr" | "keypress" | "vanchor" | "visible anchor" | "nihongo" | "val"
        | "nts" | "dts" | "math" | "mvar" | "flag" | "noitalic" | "ill" | "interlanguage link"
        | "linktext" | "sub" | "sup" | "tlx" | "script" => first,
        "quote" | "blockquote" | "cquote" | "quotation" => quotation,
        "lang" | "angbr lang" => |_, arguments| positional(arguments, 1).to_owned(),
        "transl" | "transliteration" => {
            |_, arguments| unnamed(arguments).last().unwrap_or_default().to_owned()
        }
        "angbr" => |_, arguments| format!("⟨{}⟩", positional(arguments, 0)),
        "convert" | "cvt" => convert,
        "as of" => as_of,
        "circa" | "c." => |_, arguments| format!("c. {}", positional(arguments, 0)),
        "frac" | "sfrac" => |_, arguments| {
            let parts: Vec<_> = unnamed(arguments).collect();
            match parts.as_slice() {
                [whole, top, bottom] => format!("{whole} {top}/{bottom}"),
                [bottom] => format!("1/{bottom}"),
                _ => parts.join("/"),
            }
        },
        "chem" => |_, arguments| unnamed(arguments).collect(),
        "ndash" | "en dash" => |_, _| "–".to_owned(),
        "spaced ndash" | "spnd" | "snd" | "spaced en dash" => |_, _| " – ".to_owned(),
        "mdash" | "em dash" => |_, _| "—".to_owned(),
        "·" | "dot" | "middot" => |_, _| " · ".to_owned(),
        "nbsp" | "space" => |_, _| " ".to_owned(),
        "'s" => |_, _| "'s".to_owned(),
        "'" => |_, _| "'".to_owned(),
        _ if name.starts_with("lang-") => first,
        _ if name.starts_with("formatnum:") => |name, _| {
            let number = name.split_once(':').map_or("", |(_, number)| number);
            number.trim().to_owned()
        },
        _ => return None,
    };
    Some(words)
}

fn first(_: &str, arguments: &[String]) -> String {
    positional(arguments, 0).to_owned()
}

fn quotation(name: &str, arguments: &[String]) -> String {
    let text = arguments.iter().find_map(|argument| {
        let (key, value) = argument.split_once('=')?;
        matches!(key.trim(), "text" | "quote").then(|| value.trim().to_owned())
    });
    text.unwrap_or_else(|| first(name, arguments))
}

/// `{{convert|5|km|mi}}` is "5 km", `{{convert|5|to|7|km|mi}}` is "5 to 7 km": the quantity as
/// the article gives it, without the conversion.
fn convert(_: &str, arguments: &[String]) -> String {
    let parts: Vec<_> = unnamed(arguments).collect();
    let joins = |part: &str| matches!(part, "to" | "and" | "or" | "-" | "–" | "by" | "x" | "to(-)");
    let mut words = Vec::new();
    let mut index = 0;
    while index < parts.len() {
        words.push(parts[index]);
        match parts.get(index + 1) {
            Some(&part) if joins(part) => {
                words.push(part);
                index += 2;
            }
            Some(&part) => {
                words.push(match part {
                    "km2" => "km²",
                    "m2" => "m²",
                    "sqmi" => "sq mi",
                    "sqft" => "sq ft",
                    "C" => "°C",
                    "F" => "°F",
                    "mph" => "mph",
                    unit => unit,
                });
                break;
            }
            None => break,
        }
    }
    words.join(" ")
}

fn as_of(name: &str, arguments: &[String]) -> String {
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
    let alternative = arguments
        .iter()
        .find_map(|argument| argument.trim().strip_prefix("alt="));
    if let Some(alternative) = alternative {
        return alternative.trim().to_owned();
    }
    let lower = arguments
        .iter()
        .any(|argument| argument.replace(' ', "") == "lc=y");
    let start = if lower || name.starts_with('a') {
        "as of"
    } else {
        "As of"
    };
    let month = positional(arguments, 1);
    let month = month
        .parse::<usize>()
        .ok()
        .and_then(|number| MONTHS.get(number.checked_sub(1)?).copied())
        .unwrap_or(month);
    [
        start,
        positional(arguments, 2),
        month,
        positional(arguments, 0),
    ]
    .into_iter()
    .filter(|word| !word.is_empty())
    .collect::<Vec<_>>()
    .join(" ")
}

/// Whether a template can go without a hole in the sentence: references, notices, anchors, flags.
pub(super) fn is_silent(name: &str) -> bool {
    const BEGINNINGS: [&str; 19] = [
        "cit",
        "vcit",
        "harv",
        "sfn",
        "ref",
        "efn",
        "flagicon",
        "anchor",
        "pp-",
        "use ",
        "dead",
        "page need",
        "disambiguation need",
        "#tag:ref",
        "infobox",
        "clarif",
        "unreliable",
        "better",
        "according",
    ];
    const NAMES: [&str; 28] = [
        "r",
        "rp",
        "cn",
        "fact",
        "dn",
        "who",
        "when",
        "which",
        "where",
        "why",
        "whom",
        "by whom",
        "clear",
        "-",
        "coord",
        "full",
        "verify source",
        "failed verification",
        "not in citation given",
        "dubious",
        "update after",
        "update inline",
        "portal",
        "wayback",
        "webarchive",
        "s",
        "doi",
        "isbn",
    ];
    let name = normal(name);
    NAMES.contains(&name.as_str())
        || BEGINNINGS
            .iter()
            .any(|beginning| name.starts_with(beginning))
}

/// Whether a page lists the meanings of its title: by the title itself or by its templates.
pub(super) fn is_disambiguation(title: &str, wikitext: &str) -> bool {
    const NAMES: [&str; 15] = [
        "dab",
        "hndis",
        "hndisambig",
        "geodis",
        "geodab",
        "numberdis",
        "mathdab",
        "surname",
        "given name",
        "schooldis",
        "roaddis",
        "hospitaldis",
        "shipindex",
        "letterdis",
        "callsigndis",
    ];
    if title.trim_end().ends_with("(disambiguation)") {
        return true;
    }
    wikitext.split("{{").skip(1).any(|rest| {
        let end = rest.find(['|', '}', '\n']).unwrap_or(rest.len());
        let name = normal(&rest[..end]);
        let by_beginning = name.starts_with("disambig") && !name.contains("need");
        by_beginning || name.ends_with(" disambiguation") || NAMES.contains(&name.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, arguments: &[&str]) -> String {
        let arguments: Vec<_> = arguments.iter().map(|&text| text.to_owned()).collect();
        words(name).map_or(String::new(), |words| words(name, &arguments))
    }

    #[test]
    fn known_templates_are_written_as_the_reader_sees_them() {
        assert_eq!(
            written("convert", &["5", "to", "7", "km2", "sqmi", "abbr=on"]),
            "5 to 7 km²"
        );
        assert_eq!(written("Lang", &["fr", "bonjour"]), "bonjour");
        assert_eq!(written("lang-de", &["1=Haus"]), "Haus");
        assert_eq!(written("As of", &["2010", "3"]), "As of March 2010");
        assert_eq!(written("frac", &["1", "2", "3"]), "1 2/3");
        assert_eq!(written("quote", &["text=so it is", "by=a"]), "so it is");
        assert_eq!(written("formatnum:1000", &[]), "1000");
        assert!(words("infobox town").is_none());
    }

    #[test]
    fn lists_of_meanings_are_known_by_template_or_title() {
        assert!(is_disambiguation("Mercury (disambiguation)", ""));
        assert!(is_disambiguation(
            "Mercury",
            "'''Mercury''' may be:\n{{Disambig}}"
        ));
        assert!(is_disambiguation("J. Smith", "{{hndis|Smith, J}}"));
        assert!(is_disambiguation("X", "{{Place name disambiguation}}"));
        assert!(!is_disambiguation(
            "X",
            "text {{disambiguation needed|date=May}}"
        ));
        assert!(!is_disambiguation("X", "{{about|a|b|X (disambiguation)}}"));
    }
}
