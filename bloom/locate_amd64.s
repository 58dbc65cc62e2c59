//go:build !purego

#include "textflag.h"

// func locate(at *[BatchSize]uint64, blocks []block, hs []Hash)
TEXT ·locate(SB), NOSPLIT, $0-56
	MOVQ at+0(FP), DI
	MOVQ blocks_base+8(FP), SI
	MOVQ blocks_len+16(FP), R9
	MOVQ hs_base+32(FP), R8
	MOVQ hs_len+40(FP), CX
	JMP  more

next:
	MOVQ 8(R8), AX         // Lo
	MULQ R9                // DX = number of the block
	MOVQ DX, (DI)
	SHLQ $5, DX            // of 32 bytes
	PREFETCHT0 (SI)(DX*1)
	ADDQ $16, R8
	ADDQ $8, DI

more:
	SUBQ $1, CX
	JGE  next
	RET
