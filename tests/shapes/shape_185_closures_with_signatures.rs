//! shape: 185
//! title: returned closures that take their signatures from the return type
//! lost: clippy::unused_async
//! without err: a closure is no `Result`
use std::fmt::Debug;

#[derive(Clone, Copy, Debug)]
pub struct Scale(pub u8);

impl Scale {
    #[track]
    pub fn sum(self) -> impl Fn(&[f32]) -> f32 {
        move |values| values.iter().sum::<f32>() * f32::from(self.0)
    }

    #[track]
    pub fn length(self) -> impl Fn(&str) -> usize {
        |text| text.len()
    }

    #[track(max_peak = "1GiB")]
    pub fn asynchronous(self) -> impl AsyncFn(&str) -> usize {
        async move |text| text.len() + usize::from(self.0)
    }

    #[track]
    pub fn order(self) -> impl FnMut(&String, &String) -> std::cmp::Ordering {
        |a, b| a.len().cmp(&b.len())
    }

    #[track]
    pub fn early(self) -> impl for<'a> Fn(&'a str) -> &'a str + Send + Clone {
        if self.0 > 1 {
            return |text| text;
        }
        panic!("{:?}", self)
    }

    #[track(max_peak = "1GiB")]
    pub fn lengths(&self) -> (impl Fn(&str) -> usize, u8) {
        (|text| text.len(), self.0)
    }
}

pub struct Held<T>(pub T);

impl<T: Clone + Debug> Held<T> {
    #[track]
    pub fn describe(self) -> impl Fn(&T) -> (T, usize) {
        move |other| (other.clone(), format!("{:?}", self.0).len())
    }

    #[track(max_allocs = 1000)]
    pub fn again(&mut self) -> impl FnMut(&Self) -> Self + use<T> {
        let mut count = 0;
        move |held| {
            count += 1;
            Held(held.0.clone())
        }
    }
}

#[track]
pub async fn later_sum(scale: &u8) -> impl Fn(&[f32]) -> f32 {
    shape_support::yield_now().await;
    let scale = f32::from(*scale);
    move |values| values.iter().sum::<f32>() * scale
}

#[track(leak_check)]
pub async fn later_early(is_early: bool) -> impl for<'a> Fn(&'a str) -> &'a str {
    if is_early {
        return |text| text;
    }
    shape_support::yield_now().await;
    panic!("late")
}

#[track]
pub async fn later_pair() -> (impl Fn(&str) -> usize, impl FnOnce(u8) -> Box<dyn Debug>) {
    (|text| text.len(), |number| Box::new(number))
}

#[track(max_delta = "1GiB")]
pub fn boxes() -> impl FnOnce(u8) -> Box<dyn Debug> {
    {
        |number| Box::new(number)
    }
}

#[track(max_peak = "1GiB")]
pub fn between<'a, T: Into<usize>>(least: T, text: &'a str) -> impl FnOnce(&'a str) -> &'a str + use<'a, T> {
    let least: usize = least.into();
    move |other| if other.len() > least { other } else { text }
}

#[track(max_peak = "1GiB")]
pub fn cell() -> (impl Fn(std::cell::RefMut<u8>) -> u8, ()) {
    (|cell| *cell + 1, ())
}

pub fn exercise() -> String {
    use shape_support::{block_on, send};
    let scale = Scale(2);
    let (length, number) = scale.lengths();
    let a = (scale.sum()(&[1.0, 2.0]), scale.order()(&"a".to_owned(), &String::new()), scale.early()("b").len(), scale.length()("cde"), length("ab"), number);
    let b = (Held(3).describe()(&4), Held(5).again()(&Held(6)).0, boxes()(7), between(1_u8, "c")("de"));
    let (later_length, later_box) = block_on(later_pair());
    let c = (block_on(scale.asynchronous()("ij")), block_on(later_sum(&2))(&[1.0]), block_on(send(later_early(true)))("f").len(), later_length("gh"), later_box(8));
    format!("{:?} {:?} {:?} {}", a, b, c, cell().0(std::cell::RefCell::new(9).borrow_mut()))
}
