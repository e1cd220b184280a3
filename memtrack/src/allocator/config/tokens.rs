//! The words of a settings text as PyTorch cuts them, and what it asks of them.

use super::numbers::{NumberError, double, unsigned};
use super::torch_error::TorchConfigError;

/// The words: `,` `:` `[` `]`, each alone, and what is between them. White space is dropped, also inside a word.
pub(super) struct Tokens(Vec<String>);

impl Tokens {
    pub(super) fn new(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut word = String::new();
        for character in text.chars() {
            match character {
                ',' | ':' | '[' | ']' => {
                    if !word.is_empty() {
                        tokens.push(std::mem::take(&mut word));
                    }
                    tokens.push(character.to_string());
                }
                // What C's `isspace` takes for white space.
                ' ' | '\t'..='\r' => {}
                _ => word.push(character),
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

    pub(super) fn get(&self, index: usize) -> Result<&str, TorchConfigError> {
        self.0.get(index).map(String::as_str).ok_or(TorchConfigError::IndexOutOfBounds { index })
    }

    /// The index of the value of the key at `key`. PyTorch asks that there be a word in between; it may be any.
    pub(super) fn value_of(&self, key: usize) -> Result<usize, TorchConfigError> {
        self.get(key + 1)?;
        Ok(key + 2)
    }

    /// The index of the last word of the value of the key at `key`, whatever the value is.
    pub(super) fn skip(&self, key: usize) -> Result<usize, TorchConfigError> {
        let mut index = self.value_of(key)?;
        if self.get(index)? == "[" {
            while self.get(index).map_err(|_| TorchConfigError::UnclosedList)? != "]" {
                index += 1;
            }
        }
        Ok(index)
    }

    pub(super) fn flag(&self, index: usize) -> Result<bool, TorchConfigError> {
        match self.get(index)? {
            "True" => Ok(true),
            "False" => Ok(false),
            token => Err(TorchConfigError::NotABoolean { index, token: token.to_owned() }),
        }
    }

    pub(super) fn whole(&self, index: usize) -> Result<u64, TorchConfigError> {
        let token = self.get(index)?;
        unsigned(token).map_err(|error| number_error(error, "stoull", index, token))
    }

    pub(super) fn number(&self, index: usize) -> Result<f64, TorchConfigError> {
        let token = self.get(index)?;
        double(token).map_err(|error| number_error(error, "stod", index, token))
    }
}

fn number_error(error: NumberError, function: &'static str, index: usize, token: &str) -> TorchConfigError {
    let token = token.to_owned();
    match error {
        NumberError::NotANumber => TorchConfigError::NotANumber { function, index, token },
        NumberError::OutOfRange => TorchConfigError::OutOfRange { function, index, token },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_dropped_also_inside_words() {
        assert_eq!(Tokens::new(" max_ split\t_size_mb\x0b : 3 0\n,").0, ["max_split_size_mb", ":", "30", ","]);
        assert_eq!(Tokens::new("a:[1:2,>:4]").0, ["a", ":", "[", "1", ":", "2", ",", ">", ":", "4", "]"]);
        assert_eq!(Tokens::new("a\u{a0}b").0, ["a\u{a0}b"], "only what C takes for white space");
        assert_eq!(Tokens::new(" \t ").len(), 0);
    }

    #[test]
    fn a_value_is_skipped_whatever_it_is() {
        assert_eq!(Tokens::new("a:b,c:d").skip(0), Ok(2));
        assert_eq!(Tokens::new("a:[b,c],d").skip(0), Ok(6));
        assert_eq!(Tokens::new("a[b").skip(0), Ok(2), "the separator may be any word");
        assert_eq!(Tokens::new("a:[b").skip(0), Err(TorchConfigError::UnclosedList));
        assert_eq!(Tokens::new("a:").skip(0), Err(TorchConfigError::IndexOutOfBounds { index: 2 }));
        assert_eq!(Tokens::new("a").skip(0), Err(TorchConfigError::IndexOutOfBounds { index: 1 }));
    }
}
