//go:build !purego

#include "textflag.h"

// func locate(at *[BatchSize]uint64, blocks []block, hs []Hash)
TEXT ·locate(SB), NOSPLIT, $0-56
	MOVD at+0(FP), R0
	MOVD blocks_base+8(FP), R1
	MOVD blocks_len+16(FP), R2
	MOVD hs_base+32(FP), R3
	MOVD hs_len+40(FP), R4
	B    more

next:
	MOVD   8(R3), R5       // Lo
	UMULH  R2, R5, R5      // number of the block
	MOVD.P R5, 8(R0)
	ADD    R5<<5, R1, R6   // of 32 bytes
	PRFM   (R6), PLDL1KEEP
	ADD    $16, R3

more:
	SUBS $1, R4, R4
	BGE  next
	RET
