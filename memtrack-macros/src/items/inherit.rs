//! Which options of a block its members take over.
//!
//! Options are kept as tokens and only told apart: what each means and whether it is right is for [`crate::args`] to say,
//! where the merged list ends.

use crate::errors::Errors;
use crate::function::Function;
use crate::signature::{never_returns, returned_future};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::ext::IdentExt as _;
use syn::parse::discouraged::Speculative as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Expr, LitStr, ReturnType, Signature, Token, Type, token};

/// Options of which a function can have one: its own displaces the block's other.
const RIVALS: [(&str, &str); 4] = [("device", "devices"), ("args", "skip"), ("args", "skip_all"), ("skip", "skip_all")];

/// Options that `on_exceed` speaks of.
const BUDGETS: [&str; 4] = ["max_delta", "max_peak", "max_allocs", "leak_check"];

/// A list of options, split at its commas.
#[derive(Default)]
pub(super) struct Options(Vec<Given>);

struct Given {
    /// The option's word; `name` for a bare literal, empty for what is no option.
    key: String,
    tokens: TokenStream,
}

impl Given {
    fn has_list(&self) -> bool {
        self.tokens.clone().into_iter().nth(1).is_some_and(
            |token| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis),
        )
    }
}

impl Options {
    /// Splits a list. What is wrong in it stays in it.
    pub(super) fn read(tokens: TokenStream) -> Self {
        let read = |input: ParseStream<'_>| {
            let mut given = Vec::new();
            while !input.is_empty() {
                given.push(read_one(input)?);
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(Self(given))
        };
        read.parse2(tokens).unwrap_or_default()
    }

    /// The list as it would be written.
    pub(super) fn tokens(&self) -> TokenStream {
        let given = self.0.iter().map(|option| &option.tokens);
        quote!(#(#given),*)
    }

    /// The options without those that cannot be a block's, which are errors.
    pub(super) fn for_block(self, errors: &mut Errors) -> Self {
        let keep = |option: &Given| {
            let message = match option.key.as_str() {
                "name" => "`name` would name all functions of this block alike; give it to the function that is meant",
                "args" | "skip" if option.has_list() => {
                    "this names arguments of one function; give it to the function that has them"
                }
                _ => return true,
            };
            errors.push_at(&option.tokens, message);
            false
        };
        Self(self.0.into_iter().filter(keep).collect())
    }

    /// The options of a member of the block that has these: its `own`, and of these all that it does not give itself and
    /// that can be a function's of its kind. `function` is none for a member that is a block too.
    pub(super) fn inherited_by(&self, own: Self, function: Option<&Function>, name: Option<&LitStr>) -> TokenStream {
        let has_budget = [self, &own].iter().any(|options| BUDGETS.iter().any(|budget| options.has(budget)));
        let applies = |option: &Given| {
            let Some(Function { signature, .. }) = function else { return true };
            match option.key.as_str() {
                "err" => returns_result(signature),
                "ret" => returns_named_type(signature),
                "future" => returns_future(signature),
                "on_exceed" => has_budget,
                _ => true,
            }
        };
        let inherited = self.0.iter().filter(|option| !own.has(&option.key) && !own.has_rival(&option.key));
        let mut merged: Vec<TokenStream> = own.0.iter().map(|option| option.tokens.clone()).collect();
        merged.extend(inherited.filter(|option| applies(option)).map(|option| option.tokens.clone()));
        if let Some(name) = name.filter(|_| !own.has("name")) {
            merged.push(quote!(name = #name));
        }
        quote!(#(#merged),*)
    }

    fn has(&self, key: &str) -> bool {
        self.0.iter().any(|option| option.key == key)
    }

    fn has_rival(&self, key: &str) -> bool {
        RIVALS.iter().any(|&(one, other)| (key == one && self.has(other)) || (key == other && self.has(one)))
    }
}

/// The word `skip` among the options, where it stands for the whole member and not for arguments.
pub(super) fn skip_word(options: &TokenStream) -> Option<Ident> {
    let options = Options::read(options.clone());
    options.0.into_iter().filter(|option| option.key == "skip").find_map(|option| {
        let mut tokens = option.tokens.into_iter();
        match (tokens.next(), tokens.next()) {
            (Some(TokenTree::Ident(word)), None) => Some(word),
            _ => None,
        }
    })
}

/// Whether the options are `skip` and nothing else.
pub(super) fn is_skip(options: &TokenStream) -> bool {
    Options::read(options.clone()).0.len() == 1 && skip_word(options).is_some()
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

/// The written return type, without what a macro puts around it.
fn returned_type(signature: &Signature) -> Option<&Type> {
    let ReturnType::Type(_, output) = &signature.output else { return None };
    let mut output = &**output;
    while let Type::Group(syn::TypeGroup { elem, .. }) | Type::Paren(syn::TypeParen { elem, .. }) = output {
        output = elem;
    }
    Some(output)
}

fn last_word(ty: &Type) -> Option<String> {
    let Type::Path(path) = ty else { return None };
    path.path.segments.last().map(|segment| segment.ident.unraw().to_string())
}

/// Whether the return type is called a result: nothing more can be seen here.
fn returns_result(signature: &Signature) -> bool {
    // To its author, a method that `#[async_trait]` has rewritten returns what its future gives.
    let future = returned_future(signature).filter(|future| future.is_of_async_trait);
    let output = future.and_then(|future| future.output);
    let returned = output.or_else(|| returned_type(signature));
    returned.and_then(last_word).is_some_and(|word| word.ends_with("Result"))
}

/// Whether a value is returned that can have a `Debug`: no opaque type, no boxed future, not nothing.
fn returns_named_type(signature: &Signature) -> bool {
    let nothing = |ty: &Type| matches!(ty, Type::Tuple(tuple) if tuple.elems.is_empty());
    returned_type(signature).is_some_and(|ty| !matches!(ty, Type::ImplTrait(_)) && !nothing(ty))
        && !never_returns(signature)
        && returned_future(signature).is_none()
}

/// Whether the return type is a future by its words.
fn returns_future(signature: &Signature) -> bool {
    const BOXED: [&str; 2] = ["BoxFuture", "LocalBoxFuture"];
    let Some(ty) = returned_type(signature).filter(|_| signature.asyncness.is_none()) else { return false };
    let named = last_word(ty).is_some_and(|word| BOXED.contains(&word.as_str()));
    named || returned_future(signature).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(text: &str) -> TokenStream {
        text.parse().unwrap()
    }

    #[track_caller]
    fn assert_merged(outer: &str, own: &str, function: &str, expected: &str) {
        let outer = Options::read(stream(outer));
        let function = Function::read(stream(&format!("{function} {{}}")), &mut Errors::default()).unwrap();
        let merged = outer.inherited_by(Options::read(stream(own)), Some(&function), None);
        // Without the blanks, which depend on how punctuation was joined.
        let dense = |tokens: TokenStream| tokens.to_string().replace(' ', "");
        assert_eq!(dense(merged), dense(stream(expected)));
    }

    #[test]
    fn own_options_come_first_and_displace() {
        assert_merged("phase = \"a\", level = 1", "level = 2", "fn f()", "level = 2, phase = \"a\"");
        assert_merged("phase = \"a\"", "", "fn f()", "phase = \"a\"");
        assert_merged("", "\"n\", err", "fn f()", "\"n\", err");
        assert_merged("fields(a = 1, b)", "fields(c)", "fn f()", "fields(c)");
    }

    #[test]
    fn rivals_displace_each_other() {
        assert_merged("device = d", "devices(all)", "fn f()", "devices(all)");
        assert_merged("devices = [a, b]", "device = d", "fn f()", "device = d");
        assert_merged("args", "skip(a)", "fn f(a: u8)", "skip(a)");
    }

    #[test]
    fn commas_in_generics_are_no_separators() {
        assert_merged(
            "device = get::<A, err, C>(), phase = P",
            "err",
            "fn f()",
            "err, device = get::<A, err, C>(), phase = P",
        );
        assert_merged(
            "device = <A as B<C, D>>::get(), phase = P",
            "phase = Q",
            "fn f()",
            "phase = Q, device = <A as B<C, D>>::get()",
        );
    }

    #[test]
    fn what_a_function_cannot_have_it_does_not_inherit() {
        let all = "err, ret, future";
        for (function, expected) in [
            ("fn f()", ""),
            ("fn f() -> ()", ""),
            ("fn f() -> !", ""),
            ("fn f() -> u8", "ret"),
            ("fn f() -> Result<u8, E>", "err, ret"),
            ("async fn f() -> io::Result<()>", "err, ret"),
            ("fn f() -> fmt::Result", "err, ret"),
            ("fn f() -> (IoResult<u8>)", "err, ret"),
            ("fn f() -> Option<Result<u8, E>>", "ret"),
            ("fn f() -> impl Iterator<Item = u8>", ""),
            ("fn f() -> impl Future<Output = u8> + Send", "future"),
            ("async fn f() -> impl Future<Output = u8>", ""),
            ("fn f() -> Pin<Box<dyn Future<Output = u8> + Send + 'a>>", "future"),
        ] {
            assert_merged(all, "", function, expected);
            assert_merged("", all, function, all);
        }
        assert_merged("on_exceed = \"panic\"", "", "fn f()", "");
        assert_merged("on_exceed = \"panic\"", "max_peak = 1", "fn f()", "max_peak = 1, on_exceed = \"panic\"");
    }

    #[test]
    fn what_is_wrong_stays() {
        assert_merged("phase = \"a\"", "level = , = 1, phse", "fn f()", "level = , = 1, phse, phase = \"a\"");
    }

    #[test]
    fn the_word_skip_is_no_list_of_arguments() {
        for (options, alone, somewhere) in [
            ("skip", true, true),
            ("skip,", true, true),
            ("skip, err", false, true),
            ("skip(a)", false, false),
            ("err", false, false),
        ] {
            assert_eq!(is_skip(&stream(options)), alone, "{options}");
            assert_eq!(skip_word(&stream(options)).is_some(), somewhere, "{options}");
        }
    }
}
