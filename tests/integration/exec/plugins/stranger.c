/*
 * stranger.c - a shared object that is no plug-in.
 */
int stranger(void);

__attribute__((visibility("default"))) int stranger(void)
{
    return 1;
}
