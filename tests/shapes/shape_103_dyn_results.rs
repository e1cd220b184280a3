//! shape: 103
//! title: `dyn Trait` with lifetimes in results
use shape_support::{block_on, send, yield_now};
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

pub struct Owner(Vec<String>);

impl Owner {
    #[track]
    pub fn boxed(&self) -> Box<dyn Iterator<Item = &String> + '_> {
        if self.0.is_empty() {
            return Box::new(std::iter::empty());
        }
        Box::new(self.0.iter())
    }

    #[track]
    pub fn borrowed(&self) -> &dyn Debug {
        &self.0
    }

    #[track(+err)]
    pub fn exclusive(&mut self, n: usize) -> Result<&mut (dyn Debug + Send), Box<dyn Debug + '_>> {
        match self.0.get_mut(n) {
            Some(found) => Ok(found),
            None => Err(Box::new(n)),
        }
    }

    #[track]
    pub fn future<'a>(&'a self, more: &'a str) -> Pin<Box<dyn Future<Output = usize> + Send + 'a>> {
        Box::pin(async move {
            yield_now().await;
            self.0.len() + more.len()
        })
    }

    #[track(+err)]
    pub async fn later(&self) -> Result<Box<dyn Iterator<Item = char> + Send + '_>, std::io::Error> {
        yield_now().await;
        Ok(Box::new(self.0.iter().flat_map(|text| text.chars())))
    }

    #[track]
    pub fn function<'a>(&'a self) -> Box<dyn Fn(&str) -> Option<&'a str> + 'a> {
        Box::new(move |k| self.0.iter().find(|name| *name == k).map(String::as_str))
    }
}

// calls: exclusive 2
pub fn exercise() -> String {
    let mut owner = Owner(vec!["a".to_owned(), "bc".to_owned()]);
    let text = format!("{} {:?} {:?}", owner.boxed().count(), owner.borrowed(), owner.function()("a"));
    let exclusive = format!("{:?} {:?}", owner.exclusive(0).is_ok(), owner.exclusive(9).map(|_| ()).is_err());
    let later = (block_on(send(owner.future("x"))), block_on(send(owner.later())).unwrap().count());
    format!("{} {} {:?}", text, exclusive, later)
}
