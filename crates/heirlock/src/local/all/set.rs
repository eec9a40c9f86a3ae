//! Several acquires: a tuple, an array, a `Vec`.

use super::member::{Member, Seat, Step};

/// Several acquires that [`lock_all`](super::lock_all) makes one of: a tuple of one to eight, of any locks, or an array or a `Vec` of one type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be acquired by `lock_all`",
    note = "give it a tuple of up to eight acquires, such as `(a.lock(), b.lock_owned())`, or an array or a `Vec` of acquires of one type"
)]
pub trait Acquires: Set {}

impl<S: Set> Acquires for S {}

/// What only this module may implement.
pub trait Set {
    /// The guards of all, in the order in which the acquires were given.
    type Guards;

    /// The acquires and what comes of them.
    type Seats: Seats<Guards = Self::Guards>;

    /// Nothing has been acquired yet.
    fn seats(self) -> Self::Seats;
}

/// The seats of a [`Set`].
pub trait Seats {
    /// As there.
    type Guards;

    /// Room for the number of each seat.
    type Order: AsRef<[usize]> + AsMut<[usize]>;

    /// The numbers of all seats, in order.
    fn order(&self) -> Self::Order;

    /// The seat of that number.
    fn seat(&mut self, at: usize) -> &mut dyn Step;

    /// The guards, when all have one.
    fn guards(&mut self) -> Self::Guards;
}

macro_rules! tuples {
    ($($count:literal: $($name:ident $at:tt),+;)+) => {$(
        impl<$($name: Member),+> Set for ($($name,)+) {
            type Guards = ($($name::Guard,)+);
            type Seats = ($(Seat<$name>,)+);

            fn seats(self) -> Self::Seats {
                ($(Seat::new(self.$at),)+)
            }
        }

        impl<$($name: Member),+> Seats for ($(Seat<$name>,)+) {
            type Guards = ($($name::Guard,)+);
            type Order = [usize; $count];

            fn order(&self) -> Self::Order {
                [$($at),+]
            }

            fn seat(&mut self, at: usize) -> &mut dyn Step {
                match at {
                    $($at => &mut self.$at,)+
                    _ => unreachable!("there are not so many"),
                }
            }

            fn guards(&mut self) -> Self::Guards {
                ($(self.$at.take(),)+)
            }
        }
    )+};
}

tuples! {
    1: A 0;
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, F 5;
    7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}

impl<T: Member, const N: usize> Set for [T; N] {
    type Guards = [T::Guard; N];
    type Seats = [Seat<T>; N];

    fn seats(self) -> [Seat<T>; N] {
        self.map(Seat::new)
    }
}

impl<T: Member, const N: usize> Seats for [Seat<T>; N] {
    type Guards = [T::Guard; N];
    type Order = [usize; N];

    fn order(&self) -> [usize; N] {
        std::array::from_fn(|at| at)
    }

    fn seat(&mut self, at: usize) -> &mut dyn Step {
        &mut self[at]
    }

    fn guards(&mut self) -> [T::Guard; N] {
        self.each_mut().map(Seat::take)
    }
}

impl<T: Member> Set for Vec<T> {
    type Guards = Vec<T::Guard>;
    type Seats = Vec<Seat<T>>;

    fn seats(self) -> Vec<Seat<T>> {
        self.into_iter().map(Seat::new).collect()
    }
}

impl<T: Member> Seats for Vec<Seat<T>> {
    type Guards = Vec<T::Guard>;
    type Order = Vec<usize>;

    fn order(&self) -> Vec<usize> {
        (0..self.len()).collect()
    }

    fn seat(&mut self, at: usize) -> &mut dyn Step {
        &mut self[at]
    }

    fn guards(&mut self) -> Vec<T::Guard> {
        self.iter_mut().map(Seat::take).collect()
    }
}
