//! The report as one self-contained HTML file.
//!
//! Owns: markup, escaping, the style sheet. Nothing in the file points outside it: styles and
//! figures are inline, and there is no script.

use std::fmt::Write as _;

use super::page::{Block, Page, Span, Table, Text};

const STYLE: &str = include_str!("style.css");

/// Renders the page; `figures` holds the SVG text of each figure file.
pub(super) fn render(page: &Page, figures: &[(&str, &str)]) -> String {
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
        };
    }
    html
}

/// Text for element content and quoted attributes; control characters become spaces.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push('\n'),
            other if other.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn text_from_documents_cannot_become_markup() {
        assert_eq!(
            escape("<script>\"a\" & b</script>\u{0}"),
            "&lt;script&gt;&quot;a&quot; &amp; b&lt;/script&gt; "
        );
    }
}
