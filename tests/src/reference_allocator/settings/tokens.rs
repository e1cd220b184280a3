//! A settings text cut into tokens, with the conversions of C++ that PyTorch reads values by.

use super::SettingsError;

/// The tokens, and access to them by index as a parser that counts ahead needs it.
#[derive(Debug)]
pub(super) struct Tokens(Vec<String>);

impl Tokens {
    /// Cut at `,`, `:`, `[` and `]`, which are tokens themselves; white space is dropped wherever it stands.
    pub(super) fn of(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut word = String::new();
        for character in text.chars().filter(|character| !character.is_ascii_whitespace() && *character != '\x0b') {
            if matches!(character, ',' | ':' | '[' | ']') {
                if !word.is_empty() {
                    tokens.push(std::mem::take(&mut word));
                }
                tokens.push(character.to_string());
            } else {
                word.push(character);
            }
        }
        if !word.is_empty() {
            tokens.push(word);
        }
        Self(tokens)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, at: usize) -> Result<&str, SettingsError> {
        self.0.get(at).map(String::as_str).ok_or_else(|| SettingsError::Runtime(String::from("Index out of bounds")))
    }

    pub(super) fn boolean(&self, at: usize) -> Result<bool, SettingsError> {
        match self.get(at)? {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(SettingsError::Value(format!("Expected 'True' or 'False' at index {at} but got '{other}'"))),
        }
    }

    /// As `stoull`: a sign is taken and a minus wraps around, what follows the digits is ignored.
    pub(super) fn integer(&self, at: usize) -> Result<u64, SettingsError> {
        let token = self.get(at)?;
        let unsigned = token.strip_prefix(['+', '-']).unwrap_or(token);
        let digits: String = unsigned.chars().take_while(char::is_ascii_digit).collect();
        if digits.is_empty() {
            return Err(SettingsError::Value(String::from("stoull")));
        }
        let value: u64 = digits.parse().map_err(|_| SettingsError::Index(String::from("stoull")))?;
        Ok(if token.starts_with('-') { value.wrapping_neg() } else { value })
    }

    /// As `stod`: the longest beginning that is a number.
    pub(super) fn real(&self, at: usize) -> Result<f64, SettingsError> {
        let token = self.get(at)?;
        let ends = (1..=token.len()).rev().filter(|end| token.is_char_boundary(*end));
        let number = ends.filter_map(|end| token[..end].parse::<f64>().ok().map(|value| (end, value))).next();
        match number {
            None => Err(SettingsError::Value(String::from("stod"))),
            Some((end, value)) if value.is_infinite() && !token[..end].to_ascii_lowercase().contains("inf") => {
                Err(SettingsError::Index(String::from("stod")))
            }
            Some((_, value)) => Ok(value),
        }
    }

    /// From a key's place to that of the last token of its value: PyTorch counts the colon without looking at it.
    pub(super) fn skip_value(&self, key: usize) -> Result<usize, SettingsError> {
        let mut at = key + 2;
        if self.0.get(at).is_some_and(|token| token == "[") {
            while self.0.get(at).is_some_and(|token| token != "]") {
                at += 1;
            }
            if at >= self.len() {
                return Err(SettingsError::Runtime(String::from("Expected closing bracket ']'")));
            }
        }
        Ok(at)
    }
}
