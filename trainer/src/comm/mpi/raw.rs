//! The MPI calls in use, by names and types of this crate.
//!
//! None of the types is `Send`: a [`Library`] is started by the progress thread, and everything else comes from it, so
//! that one thread makes all calls. Errors are returned, not fatal.
#![expect(
    unsafe_code,
    reason = "MPI is a C library; the non-blocking calls take pointers to buffers that the caller keeps"
)]

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use ::mpi::ffi;

/// A call that the library refused.
#[derive(Debug)]
pub(super) struct Fault(String);

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Result of the calls.
pub(super) type Result<T> = std::result::Result<T, Fault>;

/// Makes it impossible to move a value to another thread.
type Here = PhantomData<*const ()>;

/// The initialised library.
#[derive(Debug)]
pub(super) struct Library {
    /// All ranks.
    pub(super) world: Comm,
    /// The name that the library gives itself, such as `Open MPI v4.1.4`.
    pub(super) name: String,
    /// The name of this machine.
    pub(super) machine: String,
}

/// A communicator of the library; freed by [`Comm::free`] or with the library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comm {
    raw: ffi::MPI_Comm,
    here: Here,
}

/// A call in flight. Dropping it blocks until the call is complete, so that its buffers can follow.
#[derive(Debug)]
pub(super) struct Request {
    raw: ffi::MPI_Request,
    complete: bool,
    here: Here,
}

/// A message in flight to another rank.
#[derive(Debug)]
pub(super) struct Outgoing {
    request: Request,
    _message: Box<Message>,
}

/// What control messages carry.
pub(super) type Message = [u64; 2];

/// How elements are combined by the library's own reductions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Sum,
    Max,
}

/// A type that MPI knows.
pub(super) trait Element: Copy {
    /// Its name in the library.
    fn datatype() -> ffi::MPI_Datatype;
}

impl Element for f32 {
    fn datatype() -> ffi::MPI_Datatype {
        // SAFETY: a constant of the library's C part.
        unsafe { ffi::RSMPI_FLOAT }
    }
}

impl Element for u64 {
    fn datatype() -> ffi::MPI_Datatype {
        // SAFETY: a constant of the library's C part.
        unsafe { ffi::RSMPI_UINT64_T }
    }
}

impl Library {
    /// Initialises MPI; the calling thread makes all calls from here on.
    pub(super) fn start() -> Result<Self> {
        let mut provided = 0;
        // SAFETY: null arguments are allowed, and `provided` is written. The world exists afterwards.
        unsafe {
            check(
                "MPI_Init_thread",
                ffi::MPI_Init_thread(
                    ptr::null_mut(),
                    ptr::null_mut(),
                    ffi::RSMPI_THREAD_FUNNELED,
                    &raw mut provided,
                ),
            )?;
            if provided < ffi::RSMPI_THREAD_FUNNELED {
                return Err(Fault(
                    "this MPI library does not support programs with threads".into(),
                ));
            }
            check(
                "MPI_Comm_set_errhandler",
                ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN),
            )?;
        }
        let world = Comm {
            // SAFETY: a constant of the library's C part.
            raw: unsafe { ffi::RSMPI_COMM_WORLD },
            here: PhantomData,
        };
        // SAFETY: `text` makes buffers as long as the library's constants say.
        let (name, machine) = unsafe {
            (
                text(ffi::RSMPI_MAX_LIBRARY_VERSION_STRING, |buffer, len| {
                    ffi::MPI_Get_library_version(buffer, len)
                }),
                text(ffi::RSMPI_MAX_PROCESSOR_NAME, |buffer, len| {
                    ffi::MPI_Get_processor_name(buffer, len)
                }),
            )
        };
        Ok(Self {
            world,
            name,
            machine,
        })
    }

    /// Ends MPI. Collective.
    pub(super) fn finalize(self) -> Result<()> {
        // SAFETY: the library is initialised, and `self`, from which all calls come, ends here.
        let code = unsafe { ffi::MPI_Finalize() };
        drop(self);
        check("MPI_Finalize", code)
    }

    /// Ends all processes of the job with an exit code.
    pub(super) fn abort(&self, code: i32) -> ! {
        // SAFETY: the library is initialised.
        unsafe { ffi::MPI_Abort(self.world.raw, code) };
        std::process::exit(code)
    }
}

impl Comm {
    /// Number of ranks, and the number of this one.
    pub(super) fn shape(self) -> Result<(usize, usize)> {
        let (mut size, mut rank) = (0, 0);
        // SAFETY: a valid communicator; both numbers are written.
        unsafe {
            check("MPI_Comm_size", ffi::MPI_Comm_size(self.raw, &raw mut size))?;
            check("MPI_Comm_rank", ffi::MPI_Comm_rank(self.raw, &raw mut rank))?;
        }
        Ok((size as usize, rank as usize))
    }

    /// The same ranks, apart from this communicator's traffic. Collective, blocks.
    pub(super) fn duplicate(self) -> Result<Self> {
        // SAFETY: a valid communicator; the new one is written.
        self.derived("MPI_Comm_dup", |raw| unsafe {
            ffi::MPI_Comm_dup(self.raw, raw)
        })
    }

    /// The ranks of the same colour, ordered by their keys. Collective, blocks.
    pub(super) fn split(self, color: usize, key: usize) -> Result<Self> {
        // SAFETY: a valid communicator; the new one is written.
        self.derived("MPI_Comm_split", |raw| unsafe {
            ffi::MPI_Comm_split(self.raw, color as c_int, key as c_int, raw)
        })
    }

    fn derived(self, name: &str, make: impl FnOnce(*mut ffi::MPI_Comm) -> c_int) -> Result<Self> {
        // SAFETY: a constant of the library's C part.
        let mut raw = unsafe { ffi::RSMPI_COMM_NULL };
        check(name, make(&raw mut raw))?;
        // SAFETY: the communicator that was just made.
        let handled = unsafe { ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN) };
        check("MPI_Comm_set_errhandler", handled)?;
        Ok(Self {
            raw,
            here: self.here,
        })
    }

    /// Gives the communicator back; no call on it may be in flight. Collective.
    pub(super) fn free(mut self) -> Result<()> {
        // SAFETY: a valid communicator, not used afterwards: its owner drops every copy.
        check("MPI_Comm_free", unsafe {
            ffi::MPI_Comm_free(&raw mut self.raw)
        })
    }

    /// Returns at once; the request is complete when every rank has called it.
    pub(super) fn barrier(self) -> Result<Request> {
        // SAFETY: a valid communicator; no buffers.
        self.request("MPI_Ibarrier", |request| unsafe {
            ffi::MPI_Ibarrier(self.raw, request)
        })
    }

    /// Sends `count` elements from `send` to each rank, `count` apart, and as many from each to `receive`.
    ///
    /// # Safety
    /// Both pointers are valid for `size · count` elements, do not overlap, and stay untouched until the request is
    /// complete.
    pub(super) unsafe fn all_to_all<T: Element>(
        self,
        send: *const T,
        receive: *mut T,
        count: usize,
    ) -> Result<Request> {
        let (count, kind) = (elements(count)?, T::datatype());
        // SAFETY: by the contract of this function.
        self.request("MPI_Ialltoall", |request| unsafe {
            ffi::MPI_Ialltoall(
                send.cast(),
                count,
                kind,
                receive.cast(),
                count,
                kind,
                self.raw,
                request,
            )
        })
    }

    /// Sends `count` elements from `send` to all ranks, and gathers theirs in `receive`, in rank order.
    ///
    /// # Safety
    /// `send` is valid for `count` elements and `receive` for `size · count`; they do not overlap, and stay untouched
    /// until the request is complete.
    pub(super) unsafe fn all_gather<T: Element>(
        self,
        send: *const T,
        receive: *mut T,
        count: usize,
    ) -> Result<Request> {
        let (count, kind) = (elements(count)?, T::datatype());
        // SAFETY: by the contract of this function.
        self.request("MPI_Iallgather", |request| unsafe {
            ffi::MPI_Iallgather(
                send.cast(),
                count,
                kind,
                receive.cast(),
                count,
                kind,
                self.raw,
                request,
            )
        })
    }

    /// Combines `count` elements of all ranks, in an order that the library chooses.
    ///
    /// # Safety
    /// Both pointers are valid for `count` elements, do not overlap, and stay untouched until the request is complete.
    pub(super) unsafe fn all_reduce(
        self,
        send: *const f32,
        receive: *mut f32,
        count: usize,
        operation: Operation,
    ) -> Result<Request> {
        let (count, kind) = (elements(count)?, f32::datatype());
        // SAFETY: by the contract of this function.
        self.request("MPI_Iallreduce", |request| unsafe {
            ffi::MPI_Iallreduce(
                send.cast(),
                receive.cast(),
                count,
                kind,
                operation.raw(),
                self.raw,
                request,
            )
        })
    }

    /// Sums over the ranks, in an order that the library chooses; each rank gets `count` elements.
    ///
    /// # Safety
    /// `send` is valid for `size · count` elements and `receive` for `count`; they do not overlap, and stay untouched
    /// until the request is complete.
    pub(super) unsafe fn reduce_scatter(
        self,
        send: *const f32,
        receive: *mut f32,
        count: usize,
    ) -> Result<Request> {
        let (count, kind) = (elements(count)?, f32::datatype());
        // SAFETY: by the contract of this function.
        self.request("MPI_Ireduce_scatter_block", |request| unsafe {
            ffi::MPI_Ireduce_scatter_block(
                send.cast(),
                receive.cast(),
                count,
                kind,
                Operation::Sum.raw(),
                self.raw,
                request,
            )
        })
    }

    /// Sends a message to a rank.
    pub(super) fn send(self, message: Message, to: usize, tag: i32) -> Result<Outgoing> {
        let message = Box::new(message);
        let from: *const c_void = message.as_ptr().cast();
        // SAFETY: the boxed message is kept, unmoved, until the request is complete or waited for.
        let request = self.request("MPI_Isend", |request| unsafe {
            ffi::MPI_Isend(
                from,
                message.len() as c_int,
                u64::datatype(),
                to as c_int,
                tag,
                self.raw,
                request,
            )
        })?;
        Ok(Outgoing {
            request,
            _message: message,
        })
    }

    /// The next message with a tag and its sender, if one has arrived.
    pub(super) fn receive(self, tag: i32) -> Result<Option<(usize, Message)>> {
        let (mut arrived, mut status) = (0, MaybeUninit::<ffi::MPI_Status>::uninit());
        let mut message = Message::default();
        // SAFETY: the flag, the status and, where a message has arrived, the message are written before they are read.
        // A message that was probed for is received at once.
        unsafe {
            let probed = ffi::MPI_Iprobe(
                ffi::RSMPI_ANY_SOURCE,
                tag,
                self.raw,
                &raw mut arrived,
                status.as_mut_ptr(),
            );
            check("MPI_Iprobe", probed)?;
            if arrived == 0 {
                return Ok(None);
            }
            let source = status.assume_init().MPI_SOURCE;
            let received = ffi::MPI_Recv(
                message.as_mut_ptr().cast(),
                message.len() as c_int,
                u64::datatype(),
                source,
                tag,
                self.raw,
                ffi::RSMPI_STATUS_IGNORE,
            );
            check("MPI_Recv", received)?;
            Ok(Some((source as usize, message)))
        }
    }

    fn request(
        self,
        name: &str,
        call: impl FnOnce(*mut ffi::MPI_Request) -> c_int,
    ) -> Result<Request> {
        // SAFETY: a constant of the library's C part.
        let mut raw = unsafe { ffi::RSMPI_REQUEST_NULL };
        check(name, call(&raw mut raw))?;
        Ok(Request {
            raw,
            complete: false,
            here: self.here,
        })
    }
}

impl Request {
    /// Whether the call is complete; lets the library proceed with all calls in flight.
    pub(super) fn test(&mut self) -> Result<bool> {
        let mut flag = 0;
        if !self.complete {
            // SAFETY: a request of this library, not complete yet; the flag is written.
            let tested = unsafe {
                ffi::MPI_Test(&raw mut self.raw, &raw mut flag, ffi::RSMPI_STATUS_IGNORE)
            };
            // The library has given a failed request up.
            self.complete = flag != 0 || tested != ffi::MPI_SUCCESS as c_int;
            check("MPI_Test", tested)?;
        }
        Ok(self.complete)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.complete {
            // SAFETY: a request of this library, not complete yet.
            unsafe { ffi::MPI_Wait(&raw mut self.raw, ffi::RSMPI_STATUS_IGNORE) };
        }
    }
}

impl Outgoing {
    /// Whether the message has left.
    pub(super) fn test(&mut self) -> Result<bool> {
        self.request.test()
    }
}

impl Operation {
    fn raw(self) -> ffi::MPI_Op {
        // SAFETY: constants of the library's C part.
        unsafe {
            match self {
                Self::Sum => ffi::RSMPI_SUM,
                Self::Max => ffi::RSMPI_MAX,
            }
        }
    }
}

fn elements(count: usize) -> Result<c_int> {
    c_int::try_from(count).map_err(|_| Fault(format!("{count} elements are too many for one call")))
}

fn check(name: &str, code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    // SAFETY: called with the length and the buffer that `text` makes; no error text of any MPI is longer.
    let reason = text(512, |buffer, len| unsafe {
        ffi::MPI_Error_string(code, buffer, len)
    });
    Err(Fault(format!("{name} failed: {reason}")))
}

/// The text that `write` leaves in a buffer of `capacity` bytes, with its length.
fn text(capacity: c_int, write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> String {
    let mut buffer = vec![0_u8; capacity as usize + 1];
    let mut len = 0;
    write(buffer.as_mut_ptr().cast(), &raw mut len);
    let written = &buffer[..(len as usize).min(buffer.len())];
    String::from_utf8_lossy(written)
        .trim_end_matches('\0')
        .to_owned()
}
