//! A list of options as tokens: told apart, but not understood.
//!
//! For what must be decided before it is known whose options they are. What each means and whether it is right is for
//! [`crate::args`] to say, where every list ends.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::ext::IdentExt as _;
use syn::parse::discouraged::Speculative as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Expr, LitStr, Token, token};

/// A list of options, split at its commas. What is wrong in it stays in it.
pub(crate) struct Options {
    pub(crate) list: Vec<Given>,
}

/// One option.
#[derive(Clone)]
pub(crate) struct Given {
    /// The option's word; `name` for a bare literal, empty for what is no option.
    pub(crate) key: String,
    pub(crate) tokens: TokenStream,
}

impl Given {
    /// Whether a list in parentheses stands behind the word.
    pub(crate) fn has_list(&self) -> bool {
        self.tokens.clone().into_iter().nth(1).is_some_and(
            |token| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis),
        )
    }
}

impl Options {
    pub(crate) fn read(tokens: TokenStream) -> Self {
        let read = |input: ParseStream<'_>| {
            let mut list = Vec::new();
            while !input.is_empty() {
                list.push(read_one(input)?);
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(list)
        };
        let unread = || vec![Given { key: String::new(), tokens: tokens.clone() }];
        Self { list: read.parse2(tokens.clone()).unwrap_or_else(|_| unread()) }
    }

    /// The list as it would be written.
    pub(crate) fn tokens(&self) -> TokenStream {
        let list = self.list.iter().map(|option| &option.tokens);
        quote!(#(#list),*)
    }

    /// Whether an option of this word is given.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.list.iter().any(|option| option.key == key)
    }

    /// The word `skip`, where it stands for the whole item and not for arguments.
    pub(crate) fn skip_word(&self) -> Option<Ident> {
        self.list.iter().filter(|option| option.key == "skip").find_map(|option| {
            let mut tokens = option.tokens.clone().into_iter();
            match (tokens.next(), tokens.next()) {
                (Some(TokenTree::Ident(word)), None) => Some(word),
                _ => None,
            }
        })
    }

    /// Whether they are `skip` and nothing else.
    pub(crate) fn is_skip(&self) -> bool {
        self.list.len() == 1 && self.skip_word().is_some()
    }
}

/// Reads up to the next comma that is not part of the option's value: `f::<A, B>()` has one.
fn read_one(input: ParseStream<'_>) -> syn::Result<Given> {
    let mut tokens = TokenStream::new();
    let mut key = String::new();
    if let Some(literal) = input.parse::<Option<LitStr>>()? {
        "name".clone_into(&mut key);
        literal.to_tokens(&mut tokens);
    } else if input.peek(syn::Ident::peek_any) {
        let word = input.call(syn::Ident::parse_any)?;
        key = word.to_string();
        word.to_tokens(&mut tokens);
        if input.peek(Token![=]) {
            input.parse::<Token![=]>()?.to_tokens(&mut tokens);
            let ahead = input.fork();
            if let Ok(value) = ahead.parse::<Expr>() {
                input.advance_to(&ahead);
                value.to_tokens(&mut tokens);
            }
        } else if input.peek(token::Paren) {
            input.parse::<TokenTree>()?.to_tokens(&mut tokens);
        }
    }
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?.to_tokens(&mut tokens);
    }
    Ok(Given { key, tokens })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Options {
        Options::read(text.parse().unwrap())
    }

    #[test]
    fn commas_in_generics_are_no_separators() {
        let keys = |text| read(text).list.into_iter().map(|option| option.key).collect::<Vec<_>>();
        assert_eq!(keys("device = get::<A, err, C>(), phase = P"), ["device", "phase"]);
        assert_eq!(keys("device = <A as B<C, D>>::get(), \"n\", fields(a, b)"), ["device", "name", "fields"]);
    }

    #[test]
    fn what_is_wrong_stays() {
        for text in ["", "level = , = 1", "phse , \"a\" \"b\"", "1 + 1", "level = 1 phase = 2", "skip(a), err"] {
            assert_eq!(read(text).tokens().to_string(), text.parse::<TokenStream>().unwrap().to_string());
        }
    }

    #[test]
    fn the_word_skip_is_no_list_of_arguments() {
        for (text, alone, somewhere) in [
            ("skip", true, true),
            ("skip,", true, true),
            ("skip, err", false, true),
            ("skip(a)", false, false),
            ("skip = a", false, false),
            ("err", false, false),
        ] {
            assert_eq!(read(text).is_skip(), alone, "{text}");
            assert_eq!(read(text).skip_word().is_some(), somewhere, "{text}");
        }
    }
}
