//! The report as one self-contained HTML file.
//!
//! Owns: markup, escaping, the style sheet. Nothing in the file points outside it: styles and
//! figures are inline, and there is no script.

use std::fmt::Write as _;

use super::page::{Block, Comparison, Page, Passage, Span, Table, Text};
use super::visible;

const STYLE: &str = include_str!("style.css");

/// Renders the page; `figures` holds the SVG text of each figure file.
pub(crate) fn render(page: &Page, figures: &[(&str, &str)]) -> String {
    let mut html = String::new();
    html.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n");
    let title = escape(&page.title);
    let _ = write!(
        html,
        "<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n<p class=\"subtitle\">{}</p>\n",
        text(&page.subtitle)
    );
    html.push_str("<nav aria-label=\"Sections\">");
    for block in &page.blocks {
        if let Block::Section(anchor, title) = block {
            let _ = write!(html, "<a href=\"#{anchor}\">{}</a> ", escape(title));
        }
    }
    html.push_str("</nav>\n</header>\n<main>\n");
    for block in &page.blocks {
        push(&mut html, block, figures);
    }
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

fn push(html: &mut String, block: &Block, figures: &[(&str, &str)]) {
    match block {
        Block::Section(anchor, title) => {
            let _ = writeln!(html, "<h2 id=\"{anchor}\">{}</h2>", escape(title));
        }
        Block::Paragraph(content) => {
            let _ = writeln!(html, "<p>{}</p>", text(content));
        }
        Block::Callout(content) => {
            let _ = writeln!(html, "<p class=\"callout\">{}</p>", text(content));
        }
        Block::List(items) => {
            html.push_str("<ul>\n");
            for item in items {
                let _ = writeln!(html, "<li>{}</li>", text(item));
            }
            html.push_str("</ul>\n");
        }
        Block::Table(content) => table(html, content),
        Block::Comparison(content) => comparison(html, content),
        Block::Figure { file, caption, .. } => {
            let svg = figures
                .iter()
                .find(|(name, _)| name == file)
                .map_or("", |(_, svg)| svg);
            let _ = writeln!(
                html,
                "<figure>\n{svg}\n<figcaption>{}</figcaption>\n</figure>",
                text(caption)
            );
        }
        Block::Details(summary, blocks) => {
            let _ = writeln!(html, "<details>\n<summary>{}</summary>", escape(summary));
            for block in blocks {
                push(html, block, figures);
            }
            html.push_str("</details>\n");
        }
        Block::Code(code) => {
            let _ = writeln!(html, "<pre><code>{}</code></pre>", escape(code));
        }
    }
}

fn table(html: &mut String, table: &Table) {
    let class = |column: usize| {
        if column < table.names {
            ""
        } else {
            " class=\"n\""
        }
    };
    let _ = write!(
        html,
        "<div class=\"wide\"><table{}>\n<caption>{}</caption>\n<thead><tr>",
        if table.names < table.header.len() {
            ""
        } else {
            " class=\"text\""
        },
        text(&table.caption)
    );
    for (column, name) in table.header.iter().enumerate() {
        let _ = write!(
            html,
            "<th scope=\"col\"{}>{}</th>",
            class(column),
            escape(name)
        );
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(html, "<td{}>{}</td>", class(column), text(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div>\n");
}

fn text(text: &Text) -> String {
    let mut html = String::new();
    for span in &text.0 {
        let _ = match span {
            Span::Plain(text) => write!(html, "{}", escape(text)),
            Span::Strong(text) => write!(html, "<strong>{}</strong>", escape(text)),
            Span::Code(text) => write!(html, "<code>{}</code>", escape(text)),
            Span::Mark(text) => write!(html, "<mark>{}</mark>", escape(text)),
            Span::Faint(text) => write!(html, "<span class=\"faint\">{}</span>", escape(text)),
            Span::Source(text) => write!(html, "<bdi>{}</bdi>", source(text)),
        };
    }
    html
}

fn comparison(html: &mut String, comparison: &Comparison) {
    let _ = write!(
        html,
        "<article class=\"compare\">\n<h3>{}</h3>\n<dl>",
        text(&comparison.title)
    );
    for (name, value) in &comparison.facts {
        let _ = write!(
            html,
            "<div><dt>{}</dt><dd>{}</dd></div> ",
            escape(name),
            text(value)
        );
    }
    html.push_str("</dl>\n<div class=\"passages\">\n");
    for part in &comparison.passages {
        passage(html, part);
    }
    html.push_str("</div>\n</article>\n");
}

fn passage(html: &mut String, passage: &Passage) {
    let cut = |cut: bool| {
        if cut {
            "<span class=\"faint\">…</span>"
        } else {
            ""
        }
    };
    let _ = write!(
        html,
        "<section{}>\n<h4>{}</h4>\n<p dir=\"auto\">{}{}",
        if passage.faint {
            " class=\"faint\""
        } else {
            ""
        },
        escape(passage.label),
        cut(passage.cut.0),
        source(&passage.same)
    );
    if let Some(rest) = &passage.rest {
        let (word, after) = rest.split_at(first_word(rest));
        let _ = write!(
            html,
            "<mark class=\"parts\"><span class=\"spoken\">first difference: </span>\
             <span class=\"sign\" aria-hidden=\"true\">▲</span>{}</mark>{}",
            source(word),
            source(after)
        );
    }
    let _ = write!(html, "{}</p>\n</section>\n", cut(passage.cut.1));
}

/// Bytes of the first word, with the space before it.
fn first_word(text: &str) -> usize {
    let start = text.len() - text.trim_start().len();
    text[start..]
        .find(char::is_whitespace)
        .map_or(text.len(), |length| start + length)
}

/// Text from outside: what would be invisible or move other text is shown instead.
fn source(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match visible::shown(character) {
            Some(sign) => {
                let _ = write!(html, "<span class=\"escape\">{sign}</span>");
            }
            None => push_escaped(&mut html, character),
        }
    }
    html
}

/// Text for element content and quoted attributes; control characters become spaces.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => escaped.push('\n'),
            other if other.is_control() => escaped.push(' '),
            other => push_escaped(&mut escaped, other),
        }
    }
    escaped
}

fn push_escaped(html: &mut String, character: char) {
    match character {
        '&' => html.push_str("&amp;"),
        '<' => html.push_str("&lt;"),
        '>' => html.push_str("&gt;"),
        '"' => html.push_str("&quot;"),
        other => html.push(other),
    }
}

#[cfg(test)]
mod tests {
    use super::{escape, first_word, source};

    #[test]
    fn text_from_documents_cannot_become_markup() {
        assert_eq!(
            escape("<script>\"a\" & b</script>\u{0}"),
            "&lt;script&gt;&quot;a&quot; &amp; b&lt;/script&gt; "
        );
        assert_eq!(
            source("<b>\u{7f}\t\u{202e}"),
            "&lt;b&gt;<span class=\"escape\">\\u{7f}</span>\t<span class=\"escape\">\\u{202e}</span>"
        );
    }

    #[test]
    fn a_first_word_has_its_space() {
        for (text, length) in [
            ("", 0),
            (" ", 1),
            (" river bends", 6),
            ("er\nx", 2),
            ("é b", 2),
        ] {
            assert_eq!(first_word(text), length, "{text:?}");
        }
    }
}
