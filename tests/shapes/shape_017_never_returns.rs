//! shape: 17
//! title: `-> !`
//! without err: a function that never returns has no `Result`

#[track]
pub fn panics() -> ! {
    panic!("as it should")
}

#[track]
pub fn loops(n: u32) -> ! {
    if n > 1 {
        panics();
    }
    loop {}
}

#[track]
pub fn unreachable(n: Option<u32>) -> ! {
    match n {
        None => panic!("none"),
        Some(n) => panic!("some {}", n),
    }
}

pub struct Last(u32);

impl Last {
    #[track]
    pub fn ends(self) -> ! {
        panic!("ends {}", self.0)
    }

    #[track]
    #[track_caller]
    pub fn at_caller(&self) -> ! {
        panic!("line {}", std::panic::Location::caller().line() + self.0)
    }
}

// calls: panics 2
pub fn exercise() -> String {
    let f: fn() -> ! = panics;
    let all = (shape_support::panic_of(|| f()), shape_support::panic_of(|| loops(2)), shape_support::panic_of(|| unreachable(Some(1))));
    let ends = (shape_support::panic_of(|| Last(3).ends()), shape_support::panic_of(|| Last(0).at_caller()));
    format!("{:?} {:?}", all, ends)
}
