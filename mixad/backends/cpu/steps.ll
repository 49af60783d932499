; The native half of steps.py: launches one after another, again and again.
;
; A step is all launches in order; each runs all its tiles in this thread. After a step, words of
; their blocks are moved on: addresses of what the next step reads and writes.

%launch = type { ptr, ptr, i64 }                        ; kernel, block, tiles
%move = type { ptr, i64, i64 }                          ; word; how far after an even step, an odd one

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; A kernel that copies runs of bytes: destination, how many runs, sources, runs. A run has the word
; of its source, 0 for zeros; how far it begins after that, and after the destination; its length.
define void @move(ptr %block, i64 %begin, i64 %end) {
entry:
  %to = load ptr, ptr %block
  %countp = getelementptr i64, ptr %block, i64 1
  %count = load i64, ptr %countp
  %firstp = getelementptr i64, ptr %block, i64 2
  %first = load i64, ptr %firstp
  %runs = getelementptr i64, ptr %block, i64 %first
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %moved ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %run, label %done
run:
  %at = shl i64 %k, 2
  %wordp = getelementptr i64, ptr %runs, i64 %at
  %word = load i64, ptr %wordp
  %fromp = getelementptr i64, ptr %wordp, i64 1
  %from = load i64, ptr %fromp
  %afterp = getelementptr i64, ptr %wordp, i64 2
  %after = load i64, ptr %afterp
  %bytesp = getelementptr i64, ptr %wordp, i64 3
  %bytes = load i64, ptr %bytesp
  %target = getelementptr i8, ptr %to, i64 %after
  %is_zero = icmp eq i64 %word, 0
  br i1 %is_zero, label %zeros, label %source
zeros:
  call void @llvm.memset.p0.i64(ptr %target, i8 0, i64 %bytes, i1 false)
  br label %moved
source:
  %addressp = getelementptr i64, ptr %block, i64 %word
  %address = load ptr, ptr %addressp
  %found = getelementptr i8, ptr %address, i64 %from
  %is_one = icmp eq i64 %bytes, 8
  br i1 %is_one, label %one, label %several
one:
  %element = load i64, ptr %found, align 1
  store i64 %element, ptr %target, align 1
  br label %moved
several:
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %found, i64 %bytes, i1 false)
  br label %moved
moved:
  %k1 = add i64 %k, 1
  br label %next
done:
  ret void
}

; Take the steps from `first` on, before `last`. Where there is a flag, a byte, stop once it is 0
; after the first `tested` launches of a step. Return which step comes next.
define i64 @take_steps(ptr %launches, i64 %count, ptr %moves, i64 %moved, i64 %first, i64 %last,
                       ptr %flag, i64 %tested) {
entry:
  %has_flag = icmp ne ptr %flag, null
  br label %next_step
next_step:
  %step = phi i64 [ %first, %entry ], [ %step1, %after ]
  %more = icmp slt i64 %step, %last
  br i1 %more, label %next_launch, label %done
next_launch:
  %k = phi i64 [ 0, %next_step ], [ %k1, %launched ]
  %is_tested = icmp eq i64 %k, %tested
  %looks = and i1 %has_flag, %is_tested
  br i1 %looks, label %look, label %go_on
look:
  %byte = load i8, ptr %flag
  %is_over = icmp eq i8 %byte, 0
  br i1 %is_over, label %done, label %go_on
go_on:
  %any = icmp slt i64 %k, %count
  br i1 %any, label %launch, label %move_on
launch:
  %kernelp = getelementptr %launch, ptr %launches, i64 %k, i32 0
  %kernel = load ptr, ptr %kernelp
  %blockp = getelementptr %launch, ptr %launches, i64 %k, i32 1
  %block = load ptr, ptr %blockp
  %tilesp = getelementptr %launch, ptr %launches, i64 %k, i32 2
  %tiles = load i64, ptr %tilesp
  call void %kernel(ptr %block, i64 0, i64 %tiles)
  br label %launched
launched:
  %k1 = add i64 %k, 1
  br label %next_launch
move_on:
  %parity = and i64 %step, 1
  %is_odd = icmp eq i64 %parity, 1
  br label %next_move
next_move:
  %m = phi i64 [ 0, %move_on ], [ %m1, %moving ]
  %any_move = icmp slt i64 %m, %moved
  br i1 %any_move, label %moving, label %after
moving:
  %wordp = getelementptr %move, ptr %moves, i64 %m, i32 0
  %word = load ptr, ptr %wordp
  %evenp = getelementptr %move, ptr %moves, i64 %m, i32 1
  %even = load i64, ptr %evenp
  %oddp = getelementptr %move, ptr %moves, i64 %m, i32 2
  %odd = load i64, ptr %oddp
  %far = select i1 %is_odd, i64 %odd, i64 %even
  %old = load i64, ptr %word
  %new = add i64 %old, %far
  store i64 %new, ptr %word
  %m1 = add i64 %m, 1
  br label %next_move
after:
  %step1 = add i64 %step, 1
  br label %next_step
done:
  %reached = phi i64 [ %step, %next_step ], [ %step, %look ]
  ret i64 %reached
}

; A kernel that adds rows up as `_tree_sum` of results.py does: address, how many rows, their length,
; how many such blocks of rows there are. What each block leaves comes after that of the one before.
define void @sum_rows(ptr %block, i64 %begin, i64 %end) {
entry:
  %address = load ptr, ptr %block
  %countp = getelementptr i64, ptr %block, i64 1
  %all = load i64, ptr %countp
  %lengthp = getelementptr i64, ptr %block, i64 2
  %length = load i64, ptr %lengthp
  %blocksp = getelementptr i64, ptr %block, i64 3
  %blocks = load i64, ptr %blocksp
  %size = mul i64 %all, %length
  br label %next_block
next_block:
  %b = phi i64 [ 0, %entry ], [ %b1, %moved ]
  %any = icmp slt i64 %b, %blocks
  br i1 %any, label %begin_block, label %done
begin_block:
  %first = mul i64 %b, %size
  %rows = getelementptr double, ptr %address, i64 %first
  br label %next_half
next_half:
  %count = phi i64 [ %all, %begin_block ], [ %left, %halved ]
  %several = icmp sgt i64 %count, 1
  br i1 %several, label %add_half, label %move
add_half:
  %half = lshr i64 %count, 1
  %left = sub i64 %count, %half
  %offset = mul i64 %left, %length
  %elements = mul i64 %half, %length
  %others = getelementptr double, ptr %rows, i64 %offset
  br label %next
next:
  %k = phi i64 [ 0, %add_half ], [ %k1, %add ]
  %more = icmp slt i64 %k, %elements
  br i1 %more, label %add, label %halved
add:
  %to = getelementptr double, ptr %rows, i64 %k
  %from = getelementptr double, ptr %others, i64 %k
  %x = load double, ptr %to
  %y = load double, ptr %from
  %sum = fadd double %x, %y
  store double %sum, ptr %to
  %k1 = add i64 %k, 1
  br label %next
halved:
  br label %next_half
move:
  %place = mul i64 %b, %length
  %target = getelementptr double, ptr %address, i64 %place
  br label %next_moved
next_moved:
  %m = phi i64 [ 0, %move ], [ %m1, %moving ]
  %left_over = icmp slt i64 %m, %length
  br i1 %left_over, label %moving, label %moved
moving:
  %sourcep = getelementptr double, ptr %rows, i64 %m
  %value = load double, ptr %sourcep
  %targetp = getelementptr double, ptr %target, i64 %m
  store double %value, ptr %targetp
  %m1 = add i64 %m, 1
  br label %next_moved
moved:
  %b1 = add i64 %b, 1
  br label %next_block
done:
  ret void
}

; A kernel that rounds doubles to floats: destination, source, how many.
define void @narrow(ptr %block, i64 %begin, i64 %end) {
entry:
  %to = load ptr, ptr %block
  %fromp = getelementptr i64, ptr %block, i64 1
  %from = load ptr, ptr %fromp
  %countp = getelementptr i64, ptr %block, i64 2
  %count = load i64, ptr %countp
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %round ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %round, label %done
round:
  %source = getelementptr double, ptr %from, i64 %k
  %wide = load double, ptr %source
  %short = fptrunc double %wide to float
  %target = getelementptr float, ptr %to, i64 %k
  store float %short, ptr %target
  %k1 = add i64 %k, 1
  br label %next
done:
  ret void
}

; A kernel that takes elements at positions: destination, source, positions, how many, the word from
; which on the block has how many bytes come before each element of the source, 0 if it has no gaps,
; and how many bytes an element has.
define void @take(ptr %block, i64 %begin, i64 %end) {
entry:
  %to = load ptr, ptr %block
  %fromp = getelementptr i64, ptr %block, i64 1
  %from = load ptr, ptr %fromp
  %placesp = getelementptr i64, ptr %block, i64 2
  %places = load ptr, ptr %placesp
  %countp = getelementptr i64, ptr %block, i64 3
  %count = load i64, ptr %countp
  %gapsp = getelementptr i64, ptr %block, i64 4
  %gaps = load i64, ptr %gapsp
  %has_gaps = icmp ne i64 %gaps, 0
  %table = getelementptr i64, ptr %block, i64 %gaps
  %sizep = getelementptr i64, ptr %block, i64 5
  %size = load i64, ptr %sizep
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %copied ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %find, label %done
find:
  %placep = getelementptr i64, ptr %places, i64 %k
  %place = load i64, ptr %placep
  %packed = mul i64 %place, %size
  br i1 %has_gaps, label %look, label %copy
look:
  %beforep = getelementptr i64, ptr %table, i64 %place
  %before = load i64, ptr %beforep
  br label %copy
copy:
  %first = phi i64 [ %packed, %find ], [ %before, %look ]
  %source = getelementptr i8, ptr %from, i64 %first
  %after = mul i64 %k, %size
  %target = getelementptr i8, ptr %to, i64 %after
  switch i64 %size, label %several [ i64 8, label %eight
                                     i64 4, label %four ]
eight:
  %double = load i64, ptr %source, align 1
  store i64 %double, ptr %target, align 1
  br label %copied
four:
  %float = load i32, ptr %source, align 1
  store i32 %float, ptr %target, align 1
  br label %copied
several:
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %size, i1 false)
  br label %copied
copied:
  %k1 = add i64 %k, 1
  br label %next
done:
  ret void
}

; A kernel that writes elements at positions, in order, and leaves the others: the same words, where
; the source has an element for each position, and what is done: 0 if these are written, 1 if they
; are doubles or floats to add, 2 if zeros are written.
define void @write_at(ptr %block, i64 %begin, i64 %end) {
entry:
  %to = load ptr, ptr %block
  %fromp = getelementptr i64, ptr %block, i64 1
  %from = load ptr, ptr %fromp
  %placesp = getelementptr i64, ptr %block, i64 2
  %places = load ptr, ptr %placesp
  %countp = getelementptr i64, ptr %block, i64 3
  %count = load i64, ptr %countp
  %gapsp = getelementptr i64, ptr %block, i64 4
  %gaps = load i64, ptr %gapsp
  %has_gaps = icmp ne i64 %gaps, 0
  %table = getelementptr i64, ptr %block, i64 %gaps
  %sizep = getelementptr i64, ptr %block, i64 5
  %size = load i64, ptr %sizep
  %howp = getelementptr i64, ptr %block, i64 6
  %how = load i64, ptr %howp
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %copied ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %find, label %done
find:
  %placep = getelementptr i64, ptr %places, i64 %k
  %place = load i64, ptr %placep
  %packed = mul i64 %k, %size
  br i1 %has_gaps, label %look, label %copy
look:
  %beforep = getelementptr i64, ptr %table, i64 %k
  %before = load i64, ptr %beforep
  br label %copy
copy:
  %first = phi i64 [ %packed, %find ], [ %before, %look ]
  %source = getelementptr i8, ptr %from, i64 %first
  %after = mul i64 %place, %size
  %target = getelementptr i8, ptr %to, i64 %after
  switch i64 %how, label %write [ i64 1, label %add
                                  i64 2, label %clear ]
clear:
  call void @llvm.memset.p0.i64(ptr %target, i8 0, i64 %size, i1 false)
  br label %copied
add:
  %is_double = icmp eq i64 %size, 8
  br i1 %is_double, label %add_double, label %add_float
add_double:
  %x8 = load double, ptr %target
  %y8 = load double, ptr %source
  %sum8 = fadd double %x8, %y8
  store double %sum8, ptr %target
  br label %copied
add_float:
  %x4 = load float, ptr %target
  %y4 = load float, ptr %source
  %sum4 = fadd float %x4, %y4
  store float %sum4, ptr %target
  br label %copied
write:
  switch i64 %size, label %several [ i64 8, label %eight
                                     i64 4, label %four ]
eight:
  %double = load i64, ptr %source, align 1
  store i64 %double, ptr %target, align 1
  br label %copied
four:
  %float = load i32, ptr %source, align 1
  store i32 %float, ptr %target, align 1
  br label %copied
several:
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %size, i1 false)
  br label %copied
copied:
  %k1 = add i64 %k, 1
  br label %next
done:
  ret void
}

; A kernel that adds doubles at positions to zeros, in order: destination, source, positions, how
; many, gaps as above, how many bytes of zeros.
define void @add_at8(ptr %block, i64 %begin, i64 %end) {
entry:
  %to = load ptr, ptr %block
  %fromp = getelementptr i64, ptr %block, i64 1
  %from = load ptr, ptr %fromp
  %placesp = getelementptr i64, ptr %block, i64 2
  %places = load ptr, ptr %placesp
  %countp = getelementptr i64, ptr %block, i64 3
  %count = load i64, ptr %countp
  %gapsp = getelementptr i64, ptr %block, i64 4
  %gaps = load i64, ptr %gapsp
  %has_gaps = icmp ne i64 %gaps, 0
  %table = getelementptr i64, ptr %block, i64 %gaps
  %roomp = getelementptr i64, ptr %block, i64 5
  %room = load i64, ptr %roomp
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %room, i1 false)
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %add ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %find, label %done
find:
  %packed = mul i64 %k, 8
  br i1 %has_gaps, label %look, label %add
look:
  %beforep = getelementptr i64, ptr %table, i64 %k
  %before = load i64, ptr %beforep
  br label %add
add:
  %first = phi i64 [ %packed, %find ], [ %before, %look ]
  %source = getelementptr i8, ptr %from, i64 %first
  %element = load double, ptr %source
  %placep = getelementptr i64, ptr %places, i64 %k
  %place = load i64, ptr %placep
  %target = getelementptr double, ptr %to, i64 %place
  %other = load double, ptr %target
  %sum = fadd double %other, %element
  store double %sum, ptr %target
  %k1 = add i64 %k, 1
  br label %next
done:
  ret void
}

; The same of floats, whose sums are doubles.
define void @add_at4(ptr %block, i64 %begin, i64 %end) {
entry:
  %to = load ptr, ptr %block
  %fromp = getelementptr i64, ptr %block, i64 1
  %from = load ptr, ptr %fromp
  %placesp = getelementptr i64, ptr %block, i64 2
  %places = load ptr, ptr %placesp
  %countp = getelementptr i64, ptr %block, i64 3
  %count = load i64, ptr %countp
  %gapsp = getelementptr i64, ptr %block, i64 4
  %gaps = load i64, ptr %gapsp
  %has_gaps = icmp ne i64 %gaps, 0
  %table = getelementptr i64, ptr %block, i64 %gaps
  %roomp = getelementptr i64, ptr %block, i64 5
  %room = load i64, ptr %roomp
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %room, i1 false)
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %add ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %find, label %done
find:
  %packed = mul i64 %k, 4
  br i1 %has_gaps, label %look, label %add
look:
  %beforep = getelementptr i64, ptr %table, i64 %k
  %before = load i64, ptr %beforep
  br label %add
add:
  %first = phi i64 [ %packed, %find ], [ %before, %look ]
  %source = getelementptr i8, ptr %from, i64 %first
  %short = load float, ptr %source
  %element = fpext float %short to double
  %placep = getelementptr i64, ptr %places, i64 %k
  %place = load i64, ptr %placep
  %target = getelementptr double, ptr %to, i64 %place
  %other = load double, ptr %target
  %sum = fadd double %other, %element
  store double %sum, ptr %target
  %k1 = add i64 %k, 1
  br label %next
done:
  ret void
}
