//! shape: 47
//! title: elided lifetimes in arguments and results
//! lost: clippy::unused_async
use shape_support::{block_on, send, yield_now};

#[derive(Debug)]
pub struct View<'a>(&'a str);

pub struct Store(Vec<String>);

impl Store {
    #[track(+err)]
    pub fn find(&self, k: &str) -> Result<View<'_>, String> {
        let found = self.0.iter().find(|name| *name == k).ok_or("none")?;
        Ok(View(found))
    }

    #[track(+err)]
    pub async fn find_later(&self, k: &str) -> Result<View<'_>, String> {
        if k.is_empty() {
            return Err("empty".to_owned());
        }
        yield_now().await;
        let found = self.0.iter().find(|name| *name == k).ok_or("none")?;
        Ok(View(found))
    }

    #[track(+err)]
    pub fn grow(&mut self, k: &str) -> Result<&mut String, String> {
        self.0.push(k.to_owned());
        self.0.last_mut().ok_or_else(String::new)
    }

    #[track]
    pub async fn first(&mut self) -> Option<&mut String> {
        self.0.first_mut()
    }

    #[track]
    pub fn all(&self) -> (std::slice::Iter<'_, String>, View<'_>, Vec<&str>, [&str; 1]) {
        (self.0.iter(), View(&self.0[0]), self.0.iter().map(String::as_str).collect(), [&self.0[0]])
    }

    #[track]
    pub fn boxed(&self) -> Box<dyn Iterator<Item = &String> + '_> {
        Box::new(self.0.iter())
    }
}

// calls: find 2, find_later 2
pub fn exercise() -> String {
    let mut store = Store(vec!["a".to_owned()]);
    let found = format!("{:?} {:?}", store.find("a"), store.find("b"));
    let later = format!("{:?} {:?}", block_on(send(store.find_later("a"))), block_on(store.find_later("")));
    store.grow("c").unwrap().push('d');
    block_on(store.first()).unwrap().push('e');
    let (iterator, view, names, [first]) = store.all();
    format!("{} {} {} {:?} {:?} {} {}", found, later, iterator.count(), view, names, first, store.boxed().count())
}
