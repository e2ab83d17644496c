//! Characters of texts from outside that would be invisible, or would move what stands around them.

/// How a character is shown that must not stand in the page as it is: by its number. `None` for all
/// others; line feed and tab stay, and so do the joiners that scripts need.
pub(super) fn shown(character: char) -> Option<String> {
    let code = u32::from(character);
    match code {
        0x09 | 0x0a => None,
        // Controls, soft hyphen, marks of direction, zero width, separators, interlinear marks,
        // non-characters, tags.
        0x00..=0x1f
        | 0x7f..=0x9f
        | 0xad
        | 0x061c
        | 0x180e
        | 0x200b
        | 0x200e..=0x200f
        | 0x2028..=0x202e
        | 0x2060..=0x206f
        | 0xfdd0..=0xfdef
        | 0xfeff
        | 0xfff9..=0xfffb
        | 0xe0000..=0xe007f => Some(format!("\\u{{{code:x}}}")),
        _ if code & 0xfffe == 0xfffe => Some(format!("\\u{{{code:x}}}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn controls_and_overrides_are_shown_and_letters_stay() {
        let cases = [
            ('\0', "\\u{0}"),
            ('\r', "\\u{d}"),
            ('\u{1b}', "\\u{1b}"),
            ('\u{7f}', "\\u{7f}"),
            ('\u{85}', "\\u{85}"),
            ('\u{202e}', "\\u{202e}"),
            ('\u{2069}', "\\u{2069}"),
            ('\u{1fffe}', "\\u{1fffe}"),
        ];
        for (character, text) in cases {
            assert_eq!(shown(character).as_deref(), Some(text));
        }
        for character in ['\n', '\t', ' ', 'a', 'é', '\u{200d}', '中', '🦀'] {
            assert_eq!(shown(character), None, "{character:?}");
        }
    }
}
