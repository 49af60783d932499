; What XLA calls: the foreign function `mixad_kernel`, which finds a kernel by the hash of its content
; and runs it over the call's buffers. Offsets of XLA's structs are filled in by handler.py.
;
; A table is a mask, then entries of three words: hash (two words), address of a record (0: empty).
; A record is ten words:
;
;   0 kernel   1 tiles   2 flags   3 words in the block   4 address of the block
;   5 arguments   6 address of their places   7 results   8 address of theirs   9 address of messages
;
; Flags: 1, run by the calling thread alone; 2, may not end; 4, writes whole lines of the cache. A
; place is a position in the block, or negative for what no address is written of; messages are those
; for an array that is read outside its extents.

@table = internal global ptr null
@run = internal global ptr null
@pool = internal global ptr null

@quiet = internal global i32 0                          ; stops nothing
@stopped = internal global i32 0                        ; stops kernels that may not end: Ctrl-C
@lock = internal global i32 0                           ; held while the next three change
@running = internal global i64 0                        ; how many kernels run that may not end
@watched = internal global i32 0                        ; whether the handler of signals is ours
@before = internal global [64 x i64] zeroinitializer    ; struct sigaction of the handler before
@ours = internal global [64 x i64] zeroinitializer
@now = internal global [64 x i64] zeroinitializer

@unknown = internal constant [$unknown_length x i8] c"$unknown\00"
@interrupted = internal constant [$interrupted_length x i8] c"$interrupted\00"
@unaligned = internal constant [$unaligned_length x i8] c"$unaligned\00"

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
$sigaction

define void @set_table(ptr %t) {
  store atomic ptr %t, ptr @table seq_cst, align 8
  ret void
}

define void @set_workers(ptr %r, ptr %p) {
  store atomic ptr %r, ptr @run seq_cst, align 8
  store atomic ptr %p, ptr @pool seq_cst, align 8
  ret void
}

; -- signals: Python's handler only notes one, for when Python's code runs again ----------------------

define internal void @on_interrupt(i32 %signal, ptr %info, ptr %context) {
  store atomic i32 1, ptr @stopped seq_cst, align 4
  %previous = load ptr, ptr @before
  call void %previous(i32 %signal, ptr %info, ptr %context)
  ret void
}

define internal void @acquire() {
entry:
  br label %try
try:
  %pair = cmpxchg ptr @lock, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %done, label %try
done:
  ret void
}

define internal void @watch() {
entry:
  call void @acquire()
  %count = load i64, ptr @running
  %more = add i64 %count, 1
  store i64 %more, ptr @running
  %first = icmp eq i64 %count, 0
  br i1 %first, label %ask, label %done
ask:
  store atomic i32 0, ptr @stopped seq_cst, align 4
  %failed = call i32 @sigaction(i32 2, ptr null, ptr @before)
  %known = icmp eq i32 %failed, 0
  br i1 %known, label %look, label %done
look:                                                   ; 0 and 1 are no functions: default, ignored
  %previous = load i64, ptr @before
  %function = icmp ugt i64 %previous, 1
  br i1 %function, label %set, label %done
set:
  call void @llvm.memcpy.p0.p0.i64(ptr @ours, ptr @before, i64 512, i1 false)
  store ptr @on_interrupt, ptr @ours
  %refused = call i32 @sigaction(i32 2, ptr @ours, ptr null)
  store i32 1, ptr @watched
  br label %done
done:
  store atomic i32 0, ptr @lock seq_cst, align 4
  ret void
}

define internal void @unwatch() {
entry:
  call void @acquire()
  %count = load i64, ptr @running
  %less = sub i64 %count, 1
  store i64 %less, ptr @running
  %last = icmp eq i64 %less, 0
  %watched = load i32, ptr @watched
  %is_watched = icmp ne i32 %watched, 0
  %restores = and i1 %last, %is_watched
  br i1 %restores, label %ask, label %done
ask:                                                    ; somebody may have set another one since
  store i32 0, ptr @watched
  %failed = call i32 @sigaction(i32 2, ptr null, ptr @now)
  %current = load ptr, ptr @now
  %is_ours = icmp eq ptr %current, @on_interrupt
  br i1 %is_ours, label %restore, label %done
restore:
  %refused = call i32 @sigaction(i32 2, ptr @before, ptr null)
  br label %done
done:
  store atomic i32 0, ptr @lock seq_cst, align 4
  ret void
}

; -- the foreign function ------------------------------------------------------------------------------

define internal ptr @fail(ptr %frame, ptr %message, i32 %code) {
  %api_at = getelementptr i8, ptr %frame, i64 $frame_api
  %api = load ptr, ptr %api_at
  %create_at = getelementptr i8, ptr %api, i64 $api_error_create
  %create = load ptr, ptr %create_at
  %error = alloca [$error_words x i64], align 8
  store i64 $error_size, ptr %error
  %extension = getelementptr i8, ptr %error, i64 $error_extension
  store ptr null, ptr %extension
  %text = getelementptr i8, ptr %error, i64 $error_message
  store ptr %message, ptr %text
  %number = getelementptr i8, ptr %error, i64 $error_code
  store i32 %code, ptr %number
  %made = call ptr %create(ptr %error)
  ret ptr %made
}

; Say which version this was written for: XLA refuses another major one.
define internal ptr @describe(ptr %frame, ptr %extension) {
  %api_at = getelementptr i8, ptr %frame, i64 $frame_api
  %api = load ptr, ptr %api_at
  %minor_at = getelementptr i8, ptr %api, i64 $api_minor
  %minor = load i32, ptr %minor_at
  %metadata_at = getelementptr i8, ptr %extension, i64 $extension_metadata
  %metadata = load ptr, ptr %metadata_at
  %own_major = getelementptr i8, ptr %metadata, i64 $metadata_major
  store i32 $major, ptr %own_major
  %own_minor = getelementptr i8, ptr %metadata, i64 $metadata_minor
  store i32 %minor, ptr %own_minor
  %traits = getelementptr i8, ptr %metadata, i64 $metadata_traits
  store i32 0, ptr %traits
  ret ptr null
}

; The record of a hash, which the attributes are: null if there is none.
define internal ptr @find(ptr %frame) {
entry:
  %attributes_at = getelementptr i8, ptr %frame, i64 $frame_attributes
  %attributes = load ptr, ptr %attributes_at
  %first = load ptr, ptr %attributes
  %second_at = getelementptr ptr, ptr %attributes, i64 1
  %second = load ptr, ptr %second_at
  %one_at = getelementptr i8, ptr %first, i64 $scalar_value
  %one_value = load ptr, ptr %one_at
  %one = load i64, ptr %one_value
  %two_at = getelementptr i8, ptr %second, i64 $scalar_value
  %two_value = load ptr, ptr %two_at
  %two = load i64, ptr %two_value
  %table = load atomic ptr, ptr @table seq_cst, align 8
  %mask = load i64, ptr %table
  %entries = getelementptr i64, ptr %table, i64 1
  br label %probe
probe:
  %n = phi i64 [ %one, %entry ], [ %n1, %next ]
  %at = and i64 %n, %mask
  %offset = mul i64 %at, 3
  %slot = getelementptr i64, ptr %entries, i64 %offset
  %record_at = getelementptr i64, ptr %slot, i64 2
  %record = load atomic ptr, ptr %record_at seq_cst, align 8
  %empty = icmp eq ptr %record, null
  br i1 %empty, label %done, label %compare
compare:
  %slot_one = load i64, ptr %slot
  %slot_two_at = getelementptr i64, ptr %slot, i64 1
  %slot_two = load i64, ptr %slot_two_at
  %same_one = icmp eq i64 %slot_one, %one
  %same_two = icmp eq i64 %slot_two, %two
  %same = and i1 %same_one, %same_two
  br i1 %same, label %done, label %next
next:
  %n1 = add i64 %n, 1
  br label %probe
done:
  ret ptr %record
}

; Write the addresses of buffers into a block; return the bits of all of them.
define internal i64 @fill(ptr %words, ptr %buffers, i64 %count, ptr %places) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %bits = phi i64 [ 0, %entry ], [ %bits1, %next ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %buffer_at = getelementptr ptr, ptr %buffers, i64 %i
  %buffer = load ptr, ptr %buffer_at
  %data_at = getelementptr i8, ptr %buffer, i64 $buffer_data
  %data = load i64, ptr %data_at
  %place_at = getelementptr i64, ptr %places, i64 %i
  %place = load i64, ptr %place_at
  %any = or i64 %bits, %data
  %written = icmp sge i64 %place, 0
  br i1 %written, label %write, label %next
write:
  %word = getelementptr i64, ptr %words, i64 %place
  store i64 %data, ptr %word
  br label %next
next:
  %bits1 = phi i64 [ %bits, %body ], [ %any, %write ]
  %i1 = add i64 %i, 1
  br label %loop
done:
  ret i64 %bits
}

define internal i64 @field(ptr %record, i64 %n) alwaysinline {
  %at = getelementptr i64, ptr %record, i64 %n
  %value = load i64, ptr %at
  ret i64 %value
}

define internal ptr @work(ptr %frame) {
entry:
  %record = call ptr @find(ptr %frame)
  %missing = icmp eq ptr %record, null
  br i1 %missing, label %unknown, label %known
unknown:
  %no_kernel = call ptr @fail(ptr %frame, ptr @unknown, i32 5)
  ret ptr %no_kernel
known:
  %kernel = load ptr, ptr %record
  %tiles = call i64 @field(ptr %record, i64 1)
  %flags = call i64 @field(ptr %record, i64 2)
  %length = call i64 @field(ptr %record, i64 3)
  %template = call i64 @field(ptr %record, i64 4)
  %template_at = inttoptr i64 %template to ptr
  %words = alloca i64, i64 %length, align 64
  %bytes = shl i64 %length, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr %template_at, i64 %bytes, i1 false)
  %outside = alloca i32, align 4
  store i32 0, ptr %outside
  %endless_flag = and i64 %flags, 2
  %endless = icmp ne i64 %endless_flag, 0
  %stop = select i1 %endless, ptr @stopped, ptr @quiet
  %stop_at = getelementptr i64, ptr %words, i64 $block_stop
  store ptr %stop, ptr %stop_at
  %outside_at = getelementptr i64, ptr %words, i64 $block_outside
  store ptr %outside, ptr %outside_at
  %arguments_at = getelementptr i8, ptr %frame, i64 $frame_arguments
  %arguments = load ptr, ptr %arguments_at
  %argument_count = call i64 @field(ptr %record, i64 5)
  %argument_places = call i64 @field(ptr %record, i64 6)
  %argument_places_at = inttoptr i64 %argument_places to ptr
  %ignored = call i64 @fill(ptr %words, ptr %arguments, i64 %argument_count, ptr %argument_places_at)
  %results_at = getelementptr i8, ptr %frame, i64 $frame_results
  %results = load ptr, ptr %results_at
  %result_count = call i64 @field(ptr %record, i64 7)
  %result_places = call i64 @field(ptr %record, i64 8)
  %result_places_at = inttoptr i64 %result_places to ptr
  %bits = call i64 @fill(ptr %words, ptr %results, i64 %result_count, ptr %result_places_at)
  %streams_flag = and i64 %flags, 4
  %streams = icmp ne i64 %streams_flag, 0
  %low = and i64 %bits, 63
  %shifted = icmp ne i64 %low, 0
  %wrong = and i1 %streams, %shifted
  br i1 %wrong, label %unaligned, label %choose
unaligned:
  %no_lines = call ptr @fail(ptr %frame, ptr @unaligned, i32 13)
  ret ptr %no_lines
choose:
  br i1 %endless, label %before, label %start
before:
  call void @watch()
  br label %start
start:
  %alone_flag = and i64 %flags, 1
  %alone = icmp ne i64 %alone_flag, 0
  br i1 %alone, label %direct, label %shared
direct:
  call void %kernel(ptr %words, i64 0, i64 %tiles)
  br label %finished
shared:
  %run = load atomic ptr, ptr @run seq_cst, align 8
  %pool = load atomic ptr, ptr @pool seq_cst, align 8
  call void %run(ptr %pool, ptr %kernel, ptr %words, i64 %tiles)
  br label %finished
finished:
  br i1 %endless, label %after, label %check
after:
  %was_stopped = load atomic i32, ptr @stopped seq_cst, align 4
  call void @unwatch()
  %cut = icmp ne i32 %was_stopped, 0
  br i1 %cut, label %cancelled, label %check
cancelled:
  %ended = call ptr @fail(ptr %frame, ptr @interrupted, i32 1)
  ret ptr %ended
check:
  %array = load i32, ptr %outside
  %bad = icmp ne i32 %array, 0
  br i1 %bad, label %out, label %good
out:
  %messages = call i64 @field(ptr %record, i64 9)
  %messages_at = inttoptr i64 %messages to ptr
  %before_array = sub i32 %array, 1
  %message_at = getelementptr ptr, ptr %messages_at, i32 %before_array
  %message = load ptr, ptr %message_at
  %is_out = call ptr @fail(ptr %frame, ptr %message, i32 11)
  ret ptr %is_out
good:
  ret ptr null
}

define ptr @mixad_kernel(ptr %frame) {
entry:
  %extension_at = getelementptr i8, ptr %frame, i64 $frame_extension
  %extension = load ptr, ptr %extension_at
  %none = icmp eq ptr %extension, null
  br i1 %none, label %run, label %look
look:
  %type_at = getelementptr i8, ptr %extension, i64 $extension_type
  %type = load i32, ptr %type_at
  %asks = icmp eq i32 %type, $metadata_type
  br i1 %asks, label %answer, label %run
answer:
  %said = call ptr @describe(ptr %frame, ptr %extension)
  ret ptr %said
run:
  %result = call ptr @work(ptr %frame)
  ret ptr %result
}
