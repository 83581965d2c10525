/*
 * main.c - capstan. All that it does is in program.c, so that other programs can do it, too.
 */
#include "main/program.h"

int main(int argc, char **argv)
{
    return program_run(argc, argv);
}
